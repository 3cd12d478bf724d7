package io.towpath

import kotlin.coroutines.resumeWithException
import kotlinx.coroutines.CancellableContinuation
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.ReceiveChannel
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.suspendCancellableCoroutine
import okhttp3.Request
import okhttp3.Response
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import okio.ByteString

/** What a WebSocket's server has sent. */
public sealed interface Message {
  /** A text. */
  public data class Text(val text: String) : Message

  /** Bytes. */
  public data class Binary(val bytes: ByteString) : Message
}

/**
 * A WebSocket that is open, whose messages are received by coroutines. What the app does not receive stays with the
 * server: 16 messages wait here, and then the thread of the listener.
 */
public class OpenWebSocket
internal constructor(
  private val socket: WebSocket,
  /** The answer to the handshake. */
  public val response: Response,
  private val incoming: Channel<Message>,
) : AutoCloseable {
  /** They end when either side has closed it; when it broke, the receiver gets that as an exception. */
  public val messages: ReceiveChannel<Message>
    get() = incoming

  /** As [WebSocket.send]: it never waits, and is false once the socket is closed, or more than 16 MiB would wait. */
  public fun send(text: String): Boolean = socket.send(text)

  /** As [WebSocket.send]. */
  public fun send(bytes: ByteString): Boolean = socket.send(bytes)

  /** Closes it, behind what waits to be sent; [messages] end when the server has answered. */
  public fun close(code: Int, reason: String? = null): Boolean = socket.close(code, reason)

  /** Closes it (1000); what still comes is dropped. */
  override fun close() {
    socket.close(1000, null)
    incoming.cancel()
  }

  /** Ends it at once. */
  public fun cancel() {
    socket.cancel()
  }
}

/** Opens a WebSocket, and waits until it is open. A coroutine that is cancelled while it waits gives it up. */
public suspend fun WebSocket.Factory.open(request: Request): OpenWebSocket =
  suspendCancellableCoroutine { continuation ->
    val socket = newWebSocket(request, Listener(continuation))
    continuation.invokeOnCancellation { socket.cancel() }
  }

private class Listener(private val opening: CancellableContinuation<OpenWebSocket>) : WebSocketListener() {
  private val incoming = Channel<Message>(MOST_WAITING)

  override fun onOpen(webSocket: WebSocket, response: Response) =
    opening.resume(OpenWebSocket(webSocket, response, incoming)) { _, late, _ -> late.cancel() }

  override fun onMessage(webSocket: WebSocket, text: String) = take(Message.Text(text))

  override fun onMessage(webSocket: WebSocket, bytes: ByteString) = take(Message.Binary(bytes))

  /** Without anyone who receives, it is dropped: that one has closed the socket. */
  private fun take(message: Message) {
    incoming.trySendBlocking(message)
  }

  override fun onClosed(webSocket: WebSocket, code: Int, reason: String) {
    incoming.close()
  }

  override fun onFailure(webSocket: WebSocket, t: Throwable, response: Response?) {
    incoming.close(t)
    if (opening.isActive) {
      opening.resumeWithException(t)
    }
  }
}

/** Messages of one socket that were received from the network, and not by the app. */
private const val MOST_WAITING = 16
