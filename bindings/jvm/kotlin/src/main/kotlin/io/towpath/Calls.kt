package io.towpath

import java.io.IOException
import kotlin.coroutines.resumeWithException
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.suspendCancellableCoroutine
import okhttp3.Call
import okhttp3.Callback
import okhttp3.Response

/**
 * Sends the call, and waits for the head of its response. A coroutine that is cancelled while it waits gives the request
 * up; one that was cancelled when the response came closes it.
 */
public suspend fun Call.await(): Response =
  suspendCancellableCoroutine { continuation ->
    continuation.invokeOnCancellation { cancel() }
    enqueue(
      object : Callback {
        override fun onFailure(call: Call, e: IOException) = continuation.resumeWithException(e)

        override fun onResponse(call: Call, response: Response) =
          continuation.resume(response) { _, late, _ -> late.close() }
      }
    )
  }

/**
 * Sends the call, and has [read] read its response on [Dispatchers.IO]; it is closed after that. A coroutine that is
 * cancelled gives the request up at any moment, also while [read] waits for bytes, and goes on when [read] has ended.
 */
public suspend fun <T> Call.await(read: (Response) -> T): T =
  await().use { response ->
    coroutineScope {
      // Not as the failure of this scope: that of a request that was given up would hide who did so.
      val reading = async(Dispatchers.IO) { runCatching { read(response) } }
      try {
        reading.await().getOrThrow()
      } catch (why: CancellationException) {
        this@await.cancel()
        throw why
      }
    }
  }
