package io.towpath

import java.net.ConnectException
import java.net.ProtocolException
import java.util.concurrent.TimeUnit
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.toList
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import mockwebserver3.Dispatcher
import mockwebserver3.MockResponse
import mockwebserver3.MockWebServer
import mockwebserver3.RecordedRequest
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import okio.ByteString
import okio.ByteString.Companion.encodeUtf8
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.BeforeEach
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout

/** Coroutines that wait for calls and WebSockets of an engine, against OkHttp's MockWebServer. */
@Timeout(60)
class CoroutinesTest {
  // One request at a time: what was given up and is still there would hold up the next.
  private val engine = TowpathEngine.Builder().maxCalls(1).build()
  private val server = MockWebServer()
  private val client = OkHttpClient.Builder().addInterceptor(TowpathInterceptor(engine)).build()
  private val sockets = TowpathWebSockets(OkHttpClient(), engine)

  @BeforeEach fun start() = server.start()

  @AfterEach
  fun stop() {
    server.close()
    engine.close()
    client.dispatcher.executorService.shutdown()
  }

  private fun at(path: String): Request = Request.Builder().url(server.url(path)).build()

  private fun hello() = MockResponse.Builder().body("hello").build()

  private suspend fun expectHello() {
    server.enqueue(hello())
    withTimeout(10_000) {
      // The one that was given up may end a moment later.
      while (runCatching { client.newCall(at("/")).await { it.body.string() } }.getOrNull() != "hello") {
        delay(5)
      }
    }
  }

  @Test
  fun manyCallsAreAwaitedAtOnce() = runBlocking {
    server.dispatcher =
      object : Dispatcher() {
        override fun dispatch(request: RecordedRequest) =
          MockResponse.Builder().body(request.url.encodedPath).build()
      }
    TowpathEngine.create().use { wide ->
      val calls = TowpathInterceptor.callFactory(OkHttpClient(), wide)
      val bodies = (1..100).map { async { calls.newCall(at("/$it")).await { it.body.string() } } }.awaitAll()
      assertEquals((1..100).map { "/$it" }, bodies)
    }
  }

  @Test
  fun aResponseComesBeforeItsBody() = runBlocking {
    server.enqueue(hello())
    client.newCall(at("/")).await().use { response ->
      assertEquals(200, response.code)
      assertEquals("hello", response.body.string())
      assertTrue(TowpathInterceptor.report(response).contains("\"status\":200"))
    }
  }

  @Test
  fun errorsAreThrown() {
    val nowhere = Request.Builder().url("http://127.0.0.1:1/").build()
    assertThrows(ConnectException::class.java) { runBlocking { client.newCall(nowhere).await() } }
    server.enqueue(hello())
    val thrown =
      assertThrows(IllegalStateException::class.java) {
        runBlocking { client.newCall(at("/")).await { error("of the app") } }
      }
    assertEquals("of the app", thrown.message)
    runBlocking { expectHello() }
  }

  @Test
  fun aCancelledCoroutineGivesItsRequestUp(): Unit = runBlocking {
    server.enqueue(MockResponse.Builder().headersDelay(30, TimeUnit.SECONDS).build())
    val call = client.newCall(at("/"))
    val waits = launch(Dispatchers.Default) { call.await() }
    server.takeRequest()
    waits.cancelAndJoin()
    assertTrue(call.isCanceled())
    expectHello()
  }

  @Test
  fun aTimeoutEndsABodyThatStandsStill(): Unit = runBlocking {
    server.enqueue(
      MockResponse.Builder().body("x".repeat(100)).throttleBody(10, 30, TimeUnit.SECONDS).build()
    )
    val call = client.newCall(at("/"))
    val begin = System.nanoTime()
    assertThrows(TimeoutCancellationException::class.java) {
      runBlocking { withTimeout(300) { call.await { it.body.string() } } }
    }
    assertTrue(System.nanoTime() - begin < TimeUnit.SECONDS.toNanos(5))
    assertTrue(call.isCanceled())
    expectHello()
  }

  @Test
  fun requestsThatAreGivenUpAtAnyMoment(): Unit = runBlocking {
    server.dispatcher =
      object : Dispatcher() {
        override fun dispatch(request: RecordedRequest) = MockResponse.Builder().body("x".repeat(200_000)).build()
      }
    TowpathEngine.create().use { wide ->
      val calls = TowpathInterceptor.callFactory(OkHttpClient(), wide)
      var whole = 0
      repeat(200) { round ->
        val reads = async(Dispatchers.Default) { calls.newCall(at("/")).await { it.body.bytes().size } }
        delay((round % 8).toLong())
        reads.cancel()
        try {
          assertEquals(200_000, reads.await())
          whole++
        } catch (_: CancellationException) {
          // As it must be.
        }
      }
      assertTrue(whole < 200)
      assertEquals(200_000, calls.newCall(at("/")).await { it.body.bytes().size })
    }
  }

  @Test
  fun messagesAreReceivedUntilEitherSideCloses() = runBlocking {
    server.enqueue(MockResponse.Builder().webSocketUpgrade(Echo()).build())
    val socket = sockets.open(at("/chat"))
    assertEquals(101, socket.response.code)
    assertTrue(socket.send("hello"))
    assertTrue(socket.send("bytes".encodeUtf8()))
    assertEquals(Message.Text("hello"), socket.messages.receive())
    assertEquals(Message.Binary("bytes".encodeUtf8()), socket.messages.receive())
    repeat(100) { socket.send("$it") }
    assertTrue(socket.close(1000))
    assertEquals((0..99).map { Message.Text("$it") }, socket.messages.toList())
  }

  @Test
  fun aWebSocketThatFailsThrows() {
    server.enqueue(MockResponse.Builder().code(403).build())
    val refused = assertThrows(ProtocolException::class.java) { runBlocking { sockets.open(at("/")) } }
    assertTrue(refused.message!!.contains("403"))
    server.enqueue(MockResponse.Builder().webSocketUpgrade(Echo()).build())
    runBlocking {
      val socket = sockets.open(at("/"))
      socket.cancel()
      val why = runCatching { socket.messages.receive() }.exceptionOrNull()
      assertEquals("Canceled", why?.message)
    }
  }

  @Test
  fun aCancelledCoroutineGivesItsWebSocketUp(): Unit = runBlocking {
    server.enqueue(
      MockResponse.Builder().webSocketUpgrade(Echo()).headersDelay(30, TimeUnit.SECONDS).build()
    )
    assertThrows(TimeoutCancellationException::class.java) {
      runBlocking { withTimeout(300) { sockets.open(at("/")) } }
    }
    expectHello()
  }

  @Test
  fun whatIsNotReceivedIsDroppedWhenItIsClosed(): Unit = runBlocking {
    server.enqueue(MockResponse.Builder().webSocketUpgrade(Echo()).build())
    sockets.open(at("/chat")).use { socket ->
      repeat(1000) { socket.send("$it") }
      assertEquals(Message.Text("0"), socket.messages.receive())
    }
    expectHello()
  }

  private class Echo : WebSocketListener() {
    override fun onMessage(webSocket: WebSocket, text: String) {
      webSocket.send(text)
    }

    override fun onMessage(webSocket: WebSocket, bytes: ByteString) {
      webSocket.send(bytes)
    }

    override fun onClosing(webSocket: WebSocket, code: Int, reason: String) {
      webSocket.close(code, reason)
    }
  }
}
