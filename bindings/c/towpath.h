/*
 * towpath.h: HTTP requests that survive networks which lose, stall and change.
 *
 *   towpath_engine *engine;
 *   towpath_engine_new(NULL, &engine);
 *   towpath_request_options options = { .size = sizeof options, .url = "https://example.org/", .on_event = on_event };
 *   towpath_request *request;
 *   towpath_request_start(engine, &options, &request);
 *
 * An engine carries all requests on one thread of its own. What happens to a request is a sequence of events, told in
 * one of two ways: to a function (on_event), which the engine's thread calls; or through a queue, from which any thread
 * takes them when it likes: at once, waiting, or from a loop of its own that watches the queue's descriptor.
 * examples/get.c and examples/poll.c show one each.
 *
 * ONE END. A request that was started gets its events in this order: at most one HEAD, any number of DATA, at most one
 * TRAILERS, and exactly one END, whatever happens: also when it is cancelled, and when the engine is freed. ROOM may
 * come anywhere before END. A start that fails gets no event.
 *
 * OWNERSHIP. Engines, queues, requests and chunks are handles; each kind has one function that gives a handle back,
 * which may be called once for each handle and takes NULL. All that a function is given is copied before it returns.
 * Pointers that come out of a request (fields, texts, the record) are valid until the request is freed; those of a
 * chunk until it is released. Nothing of this library is to be given to free().
 *
 * THREADS. Every function may be called by any thread, also several at a time on the same handle; but nothing may use a
 * handle while or after it is given back. on_event is called on the engine's thread: it must not block, must not throw,
 * and must not free the engine. Everything else may be called from there, towpath_queue_next only with a timeout of 0.
 * The same holds for on_question and on_challenge, for an outbox's on_end on a thread of its own, and for a link's
 * on_push and on_answer on the link's thread. A stream's on_event has a thread of its own, and may block. A runner
 * belongs to the thread that made it. Engines do not survive fork() in the child.
 *
 * FLOW CONTROL. Chunks are the engine's own memory, not copies. As long as a chunk is held its bytes count to the
 * request's window (window_bytes); when it is full, the server is kept from sending more, and only what had been read
 * by then still comes: no more than 128 KiB. A request's body is written in pieces as long as there is room; after a
 * write that took less than all a ROOM event tells when to go on.
 *
 * GROWING. Structures begin with their size as the caller knows it, and grow at their end: a library that is older than
 * the header refuses what it does not know, unless it is zero; one that is newer takes what is missing for zero. Zero
 * always means the default. TOWPATH_ABI_VERSION has the major version above bit 16 and the minor below: libraries with
 * the same major version can stand in for older ones.
 */
#ifndef TOWPATH_H
#define TOWPATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOWPATH_ABI_MAJOR 1u
#define TOWPATH_ABI_MINOR 11u
#define TOWPATH_ABI_VERSION ((TOWPATH_ABI_MAJOR << 16) | TOWPATH_ABI_MINOR)

/* The version of this interface that the library has, as TOWPATH_ABI_VERSION. */
uint32_t towpath_abi_version(void);

/* The library's own version, as text. */
const char *towpath_version(void);

typedef struct towpath_engine towpath_engine;
typedef struct towpath_queue towpath_queue;
typedef struct towpath_request towpath_request;
typedef struct towpath_chunk towpath_chunk;
typedef struct towpath_question towpath_question; /* since 1.1, as all of this that is marked so */
typedef struct towpath_runner towpath_runner;
typedef struct towpath_outbox towpath_outbox;
typedef struct towpath_link towpath_link; /* since 1.2 */
typedef struct towpath_push towpath_push; /* since 1.2 */
typedef struct towpath_socket towpath_socket; /* since 1.7 */
typedef struct towpath_stream towpath_stream; /* since 1.9 */

/* Bytes that are borrowed; not ended by a NUL. */
typedef struct towpath_bytes {
    const char *data;
    size_t length;
} towpath_bytes;

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* What came of a call, or of a request. */
typedef int32_t towpath_error;

enum {
    TOWPATH_OK = 0,

    /* The caller's mistake. */
    TOWPATH_ERROR_ARGUMENT = 1, /* NULL, not UTF-8, out of its range, or a field that this library does not know */
    TOWPATH_ERROR_URL = 2,      /* not a URL that can be asked */
    TOWPATH_ERROR_TOKEN = 3,    /* a method, or a field's name or value, that HTTP does not allow */
    TOWPATH_ERROR_BODY = 4,     /* more or less of the request's body than promised, or after its end */
    TOWPATH_ERROR_STATE = 5,    /* not now, or not from this thread */
    TOWPATH_ERROR_ABSENT = 6,   /* there is none (yet) */

    /* The platform's, or ours. */
    TOWPATH_ERROR_TLS_SETUP = 20, /* roots, pins or identity cannot be used */
    TOWPATH_ERROR_RESOURCE = 21,  /* no thread, descriptors or file, or too much waits already */
    TOWPATH_ERROR_STOPPED = 22,   /* the engine is gone */
    TOWPATH_ERROR_INTERNAL = 23,  /* a mistake in this library */

    /* How a request ends without a whole response. */
    TOWPATH_ERROR_CANCELLED = 40,
    TOWPATH_ERROR_OFFLINE = 41, /* the platform said that there is no network */
    TOWPATH_ERROR_RESOLVE = 42,
    TOWPATH_ERROR_CONNECT = 43,
    TOWPATH_ERROR_TLS = 44, /* the handshake failed, or the server is not to be believed */
    TOWPATH_ERROR_FIRST_BYTE_TIMEOUT = 45,
    TOWPATH_ERROR_GAP_TIMEOUT = 46,
    TOWPATH_ERROR_ATTEMPT_TIMEOUT = 47,
    TOWPATH_ERROR_TOTAL_TIMEOUT = 48,
    TOWPATH_ERROR_DISCONNECTED = 49, /* before the response was whole */
    TOWPATH_ERROR_PROTOCOL = 50,     /* what came was not HTTP */
    TOWPATH_ERROR_OVERFLOW = 51,     /* too many requests are under way */
    TOWPATH_ERROR_OTHER = 52,        /* newer than this list */
    /* the origin answered 429 or 503 lately, and is left alone for longer than the request waits */
    TOWPATH_ERROR_RESTING = 53,
    TOWPATH_ERROR_IDENTICAL_LIMIT = 54, /* max_identical */
    TOWPATH_ERROR_FLOW_LIMIT = 55,   /* max_flow_bytes */
    /* since 1.2: the link has no connection, or had none in time: the request was not sent */
    TOWPATH_ERROR_NOT_CONNECTED = 56,
    /* since 1.3: the body is not in the coding that it names, or becomes more than its reader keeps up with */
    TOWPATH_ERROR_DECODING = 57,
    TOWPATH_ERROR_PROXY = 58, /* since 1.6: the proxy gives no way to the origin */
    TOWPATH_ERROR_WEBSOCKET = 59, /* since 1.7: no WebSocket, or no more */
    TOWPATH_ERROR_EVENTS = 60 /* since 1.9: no stream of events, or an event that is too long */
};

/* What an error means, in a few words. Never NULL. */
const char *towpath_error_text(towpath_error error);

/* What the last call on this thread that failed had to say, in more words. Valid until the next one fails. Never NULL.
 */
const char *towpath_last_error(void);

/* ---- Engine ------------------------------------------------------------------------------------------------------ */

/* What a server (401) or a proxy (407) asks for; it and its pointers are valid during the call, and nothing of it is to
 * be changed. Since 1.9. */
typedef struct towpath_challenge {
    size_t size;         /* sizeof(towpath_challenge), as the library knows it */
    void *user;          /* challenge_user */
    const char *host;    /* who asks, in lower case, without the port */
    const void *own;     /* the library's own */
    uint32_t port;
    uint32_t is_of_proxy; /* not 0: a proxy asks */
    uint32_t is_secure;  /* not 0: the answer goes there under TLS */
    uint32_t attempt;    /* how often the request was refused before, from 0: what was answered then is wrong */
} towpath_challenge;

typedef struct towpath_engine_options {
    size_t size; /* sizeof(towpath_engine_options) */

    const char *memory_path;        /* begin with what towpath_engine_save saved there, if it did */
    const char *roots_pem;          /* certificates to believe, in place of the platform's */
    /* SHA-256 of public keys (SubjectPublicKeyInfo), 32 bytes each, of which a server must have one */
    const uint8_t *pins;
    size_t pin_count;               /* how many */
    const char *identity_chain_pem; /* who we are, to servers that ask: a certificate and its chain … */
    const char *identity_key_pem;   /* … and its key */

    size_t window_bytes;      /* of each body that may wait: 262144; at least 4096 */
    size_t replay_bytes;      /* of a request's body that are kept to send it again: 65536 */
    uint32_t max_requests;    /* under way; one more fails: 1024 */
    uint32_t max_connections; /* to one origin: 16 */
    uint32_t idle_timeout_ms; /* how long a connection may have no request: 60000 */
    /* the longest that an origin is left alone after it answered 429 or 503: 300000; TOWPATH_NONE: never */
    uint32_t max_rest_ms;

    /* that leave within flow_window_ms, heads and bodies; what would be more is refused: no limit */
    uint64_t max_flow_bytes;
    uint32_t flow_window_ms;      /* 3600000 */
    uint32_t max_identical;       /* requests of the same method, URL and body within identical_window_ms: no limit */
    uint32_t identical_window_ms; /* 3600000 */

    /* Since 1.1: asks the app for names, not the system, on the engine's thread. The question is to be answered by
     * towpath_question_answer: in there, or later by any thread. */
    void (*on_question)(towpath_question *question, void *user);
    void *question_user; /* comes back in on_question */

    /* since 1.1: not 0: the kernel tells what network there is, not towpath_engine_network (Linux) */
    uint32_t watch_network;

    /* Since 1.3: DNS servers to ask for names with a dot, as "192.0.2.1,[2001:db8::1]:53" (Linux): those of
     * resolv.conf(5). */
    const char *dns_servers;
    /* since 1.3: not 0: every name is asked of the system (getaddrinfo), which may wait for much longer */
    uint32_t system_resolver;
    uint32_t reserved;        /* 0 */

    /* Since 1.4: what is kept over requests, each in a file or folder of its own, which need not be there yet. A
     * library that was built without it (cargo features cookies, hsts, cache) refuses it with TOWPATH_ERROR_ARGUMENT.
     */
    /* cookies (RFC 6265bis), as curl writes them; read here, written by towpath_engine_keep */
    const char *cookies_path;
    const char *hsts_path;    /* hosts that want TLS alone (RFC 6797), as curl writes them; likewise */
    const char *cache_path;   /* a folder of responses (RFC 9111); TOWPATH_ERROR_RESOURCE where another engine has it */
    uint64_t cache_bytes;     /* that it takes at most: 67108864 */
    /* by so much a response may be stale that stands in for a server which does not answer: 0 */
    uint32_t cache_stale_s;

    /* Since 1.6: not 0: the proxies of the environment, by curl's rules (http_proxy, HTTPS_PROXY, ALL_PROXY, NO_PROXY).
     * Since 1.11: 2: those of the platform, which is the same on Linux, but for auto_proxy, a PAC script, which is refused
     * (TOWPATH_ERROR_ARGUMENT); so are macOS, iOS, Windows and Android where the environment has none. */
    uint32_t proxy_from_environment;
    /* Since 1.6: a proxy for all requests, as "http://user:password@host:port", "https://…", "socks5://…"; it resolves
     * names. An empty text is none, whatever the environment says. */
    const char *proxy;
    const char *no_proxy;     /* since 1.6: but not for these, as "example.org,10.0.0.0/8" */

    /* Since 1.7: not 0: each origin has connections of its own, also where an HTTP/2 connection to the same address is
     * open whose certificate has its name. */
    uint32_t no_coalescing;
    /* Since 1.10: requests under way to one origin; further ones wait in order, which counts to timeout_ms. Sockets and
     * what is `unlimited` do not count: no limit. */
    uint32_t max_requests_per_origin;

    /* Since 1.8: a server of DNS over HTTPS (RFC 8484) to ask for names with a dot, as "https://dns.example/dns-query";
     * TOWPATH_ERROR_URL where it is no https. The system is asked for the server's own name, for names below local,
     * localhost and onion, and for none that the server does not answer. Not with on_question, which answers itself. */
    const char *doh_url;
    const char *doh_addresses; /* since 1.8: the server's addresses, as "192.0.2.1,2001:db8::1"; then no resolver is asked for it */
    uint32_t doh_timeout_ms;   /* since 1.8: how long the server may take: 10000 */
    uint32_t doh_or_system;    /* since 1.8: not 0: the system is asked for names that the server does not answer */

    /* Since 1.9: asks the app for credentials when a server or a proxy wants some, at most three times for a request, but
     * not for the server where the request has auth_user, nor where its body follows. It answers in the call
     * (towpath_challenge_answer, towpath_challenge_answer_field), or not: then the 401 or 407 stands, and a tunnel that
     * a proxy did not give is TOWPATH_ERROR_PROXY. Called on the engine's thread or another of the library's, perhaps by
     * two at the same time; it must not block. A library that was built without it (cargo feature auth) refuses. */
    void (*on_challenge)(const towpath_challenge *challenge);
    void *challenge_user; /* comes back in the challenge */

    /* Since 1.11: requests under way to all origins together; further ones wait as for max_requests_per_origin, who came
     * first goes first: no limit but max_requests, at which one fails. */
    uint32_t max_requests_under_way;
    uint32_t doh_by_get; /* since 1.11: not 0: by GET, which caches may answer, in place of POST */
} towpath_engine_options;

/* Starts an engine. It needs no network to start. NULL for options means all defaults. */
towpath_error towpath_engine_new(const towpath_engine_options *options, towpath_engine **engine);

/* Ends the engine and every request on it, which get their END before this returns; then its thread is gone, and no
 * function is called any more. TOWPATH_ERROR_STATE, and nothing is freed, as long as a link, a socket or a stream of
 * it is open. Requests, chunks and queues stay valid, and still have to be given back. One that has a runner ends its
 * requests when that is freed. */
towpath_error towpath_engine_free(towpath_engine *engine);

/* Makes an engine without a thread, for a thread that the app lends: this one, on which the runner's functions have to
 * be called. Nothing happens to requests but in there, and on_event is called from there. Since 1.1. */
towpath_error towpath_engine_lend(const towpath_engine_options *options, towpath_engine **engine,
    towpath_runner **runner);

/* Does what there is to do, and waits up to timeout_ms for something to do: 0 does not wait, a negative one waits as
 * long as it takes. TOWPATH_ERROR_STATE on another thread, and in on_event. Since 1.1. */
towpath_error towpath_runner_turn(towpath_runner *runner, int32_t timeout_ms);

/* Turns until the engine is freed, by another thread. Since 1.1. */
towpath_error towpath_runner_run(towpath_runner *runner);

/* Ends every request that is left, which get their END before this returns. The engine is to be freed as well, before
 * or after. TOWPATH_ERROR_STATE, and nothing is freed, on another thread and in on_event. Since 1.1. */
towpath_error towpath_runner_free(towpath_runner *runner);

/* The name that is asked for, in lower case; valid until the question is answered. Since 1.1. */
const char *towpath_question_name(const towpath_question *question);

/* Answers, and gives the question back. With TOWPATH_OK come the addresses as text, the best first; none means that the
 * name has none, and ends requests that wait for it. Any other outcome means that it cannot be told now: it is asked
 * again half a second later. When an address is none, TOWPATH_ERROR_ARGUMENT, and the question is not given back. Since
 * 1.1. */
towpath_error towpath_question_answer(towpath_question *question, towpath_error outcome, const char *const *addresses,
    size_t count);

/* The name of the scheme at this place of a challenge, from 0, as "Basic"; TOWPATH_ERROR_ABSENT behind the last one.
 * Since 1.9. */
towpath_error towpath_challenge_scheme(const towpath_challenge *challenge, uint32_t index, towpath_bytes *name);

/* A parameter of that scheme, whatever the name's case, as "realm"; TOWPATH_ERROR_ABSENT without one. Since 1.9. */
towpath_error towpath_challenge_parameter(const towpath_challenge *challenge, uint32_t index, const char *name,
    towpath_bytes *value);

/* Answers with a name and a password, by the best scheme that is offered: Digest where the library was built with it,
 * else Basic. A name has no colon; password may be NULL. The last answer counts. Since 1.9. */
towpath_error towpath_challenge_answer(const towpath_challenge *challenge, const char *user, const char *password);

/* Answers with the whole value of authorization or proxy-authorization, as "Bearer …". Since 1.9. */
towpath_error towpath_challenge_answer_field(const towpath_challenge *challenge, const char *value);

enum { TOWPATH_NETWORK_FIXED = 0, TOWPATH_NETWORK_MOBILE = 1 };

/* The platform says what network there is. The label is a name by which it is known again. Idle connections are let go,
 * names are asked for anew, requests that may be repeated move; without a network (online = 0) no attempt is made. */
towpath_error towpath_engine_network(towpath_engine *engine, const char *label, uint32_t kind, int32_t online);

/* Saves what is remembered of addresses and names, for memory_path in the next life. A crash leaves the old file or the
 * new one. Blocks while the file is written, and is refused in on_event and on the thread of the engine's runner. */
towpath_error towpath_engine_save(towpath_engine *engine, const char *path);

/* Writes cookies_path and hsts_path, and waits until cache_path is as the engine has it. A crash leaves old files or
 * new ones. Blocks, and is refused in callbacks. Since 1.4. */
towpath_error towpath_engine_keep(const towpath_engine *engine);

/* How often the engine's thread has woken up. With nothing to do this does not grow. */
uint64_t towpath_engine_wakeups(const towpath_engine *engine);

/* ---- Events ------------------------------------------------------------------------------------------------------ */

enum {
    TOWPATH_EVENT_NONE = 0,     /* only from queues: nothing happened within the timeout */
    TOWPATH_EVENT_HEAD = 1,     /* status and fields can be read from the request */
    TOWPATH_EVENT_DATA = 2,     /* a piece of the response's body; the chunk is yours */
    TOWPATH_EVENT_TRAILERS = 3, /* the fields after the body can be read from the request */
    TOWPATH_EVENT_ROOM = 4,     /* there is room for the request's body again */
    TOWPATH_EVENT_END = 5       /* it is over; from here on the request may be freed */
};

typedef struct towpath_event {
    size_t size; /* sizeof(towpath_event), as the maker of the structure knows it */
    uint32_t kind;
    towpath_error error;      /* END: TOWPATH_OK if the response is whole, even if its status is 500 */
    towpath_request *request; /* whose; NULL for NONE */
    void *user;               /* what was given with the request */
    towpath_chunk *chunk;     /* DATA: to be released, at once or later, by any thread */
    const uint8_t *data;      /* DATA: the chunk's bytes; never empty */
    size_t length;            /* DATA: how many */
    const char *text;         /* END: the error in words, valid as long as the request; "" without one */
} towpath_event;

/* Gives a chunk's memory back, and its bytes to the window. Also after the request has ended or was freed. */
void towpath_chunk_release(towpath_chunk *chunk);

/* ---- Queues ------------------------------------------------------------------------------------------------------ */

/* Makes a queue for the events of any number of requests, of any engines. */
towpath_error towpath_queue_new(towpath_queue **queue);

/* Takes the next event. Waits for it up to timeout_ms: 0 does not wait, a negative one waits as long as it takes. When
 * there was none, the event's kind is NONE. Set event->size before. */
towpath_error towpath_queue_next(towpath_queue *queue, towpath_event *event, int32_t timeout_ms);

/* A descriptor that is readable as long as events wait: for poll, select, epoll, kqueue. Only to be watched: not to be
 * read, and not to be closed. -1 on platforms without such descriptors. */
int32_t towpath_queue_fd(const towpath_queue *queue);

/* Drops what waits. Requests that have not ended are given up; their events are dropped, and they may be freed. */
void towpath_queue_free(towpath_queue *queue);

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

typedef struct towpath_field {
    const char *name;
    const char *value;
} towpath_field;

enum {
    TOWPATH_REPEAT_BY_METHOD = 0, /* RFC 9110 section 9.2.2 */
    TOWPATH_REPEAT_ALWAYS = 1,
    TOWPATH_REPEAT_NEVER = 2
};

enum { TOWPATH_PRIORITY_NORMAL = 0, TOWPATH_PRIORITY_HIGH = 1, TOWPATH_PRIORITY_LOW = 2 };

enum {
    TOWPATH_HTTP_NEGOTIATED = 0, /* under TLS HTTP/2 where the server chooses it, else HTTP/1.1 */
    TOWPATH_HTTP_1 = 1,
    TOWPATH_HTTP_2 = 2 /* in plain text without asking whether the server speaks it */
};

#define TOWPATH_LENGTH_UNKNOWN UINT64_MAX /* sent in chunks (RFC 9112 section 7.1) */
#define TOWPATH_NONE UINT32_MAX           /* no retries; no limit on time */

typedef struct towpath_request_options {
    size_t size; /* sizeof(towpath_request_options) */

    const char *url;    /* http:// or https:// */
    const char *method; /* GET */
    const towpath_field *fields;
    size_t field_count;

    /* Exactly one of these. */
    void (*on_event)(const towpath_event *event);
    towpath_queue *queue;
    void *user; /* comes back in every event */

    /* The body: all of it here, or afterwards by towpath_request_write. */
    const void *body;
    size_t body_length;
    uint32_t body_follows;   /* not 0: it comes afterwards … */
    uint32_t repeat;         /* whether it may be sent again when it is not known what became of it */
    uint64_t content_length; /* … and is so long, or TOWPATH_LENGTH_UNKNOWN */

    const char *idempotency_key;    /* the server knows a repetition by it: it may always be repeated */
    /* for everything, body included, or TOWPATH_NONE; 0: only until the response begins, 60000 */
    uint32_t timeout_ms;
    uint32_t first_byte_timeout_ms; /* from the request's last byte to the response's first: by formula and history */
    uint32_t gap_timeout_ms;        /* between two pieces of the response: 8000, on mobile networks 12000 */
    uint32_t retries;               /* after a failure, where that is allowed: 2, or TOWPATH_NONE */
    uint32_t wait_for_network;      /* not 0: wait where it would end with TOWPATH_ERROR_OFFLINE */
    /* not 0: end with TOWPATH_ERROR_RESTING where it would wait for its origin's rest to be over */
    uint32_t fail_at_rest;
    uint32_t unlimited;             /* not 0: max_identical and max_flow_bytes do not hold for it */
    uint32_t priority;              /* among those that wait for a connection to the same origin */
    /* not 0: a response that breaks off fails, where the rest could be asked for elsewhere */
    uint32_t no_resume;
    /* not 0: send it a second time when it is late for its origin and may be repeated */
    uint32_t hedge;

    /* Since 1.3. */
    /* for one attempt until the response begins, counted anew while its body makes progress: by formula */
    uint32_t attempt_timeout_ms;
    uint32_t answer_timeout_ms;  /* until the response begins, with all repetitions, counted likewise: 60000 */
    /* answers that name another place (301, 302, 303, 307, 308) which are followed: none; not with body_follows */
    uint32_t redirects;
    /* not 0: ask for compressed responses, and hand them out as they were, without content-encoding */
    uint32_t decode;

    /* Since 1.4: credentials, sent to the origin of the URL once it asks for them (401), by Basic, or by Digest where
     * the library was built with it (cargo feature digest; without auth it refuses). Not in an outbox, nor with
     * body_follows. For others see on_challenge of the engine. */
    const char *auth_user;
    const char *auth_password; /* empty */

    /* Since 1.5: which versions of HTTP are spoken. A library that was built without HTTP/2 (cargo feature http2)
     * speaks HTTP/1.1, and refuses to speak HTTP/2 alone: TOWPATH_ERROR_PROTOCOL. */
    uint32_t http_versions;
    uint32_t reserved; /* 0 */
} towpath_request_options;

/* Starts a request. *request is set before the first event can come; when the start fails it is NULL and none comes. */
towpath_error towpath_request_start(towpath_engine *engine, const towpath_request_options *options, towpath_request
    **request);

/* Sends as much of a piece of the body as there is room for; *taken is how much that was. Where it is less than length,
 * a ROOM event follows. Fails once the request has ended. */
towpath_error towpath_request_write(towpath_request *request, const void *data, size_t length, size_t *taken);

/* The body is complete. */
towpath_error towpath_request_finish(towpath_request *request);

/* Gives it up, unless it has ended. Its END comes as always. */
towpath_error towpath_request_cancel(towpath_request *request);

/* The response's status; 0 before HEAD. */
uint32_t towpath_request_status(const towpath_request *request);

/* What the server spoke, as "HTTP/2"; "" before HEAD. Never NULL. Since 1.5. */
const char *towpath_request_http_version(const towpath_request *request);

enum { TOWPATH_FIELDS_HEAD = 0, TOWPATH_FIELDS_TRAILERS = 1 };

/* The field at this place of head or trailers, from 0, names as the server wrote them. TOWPATH_ERROR_ABSENT behind the
 * last one. name or value may be NULL. */
towpath_error towpath_request_field(const towpath_request *request, uint32_t where, size_t index, towpath_bytes *name,
    towpath_bytes *value);

/* The value of the first field of this name in the head, whatever its case; TOWPATH_ERROR_ABSENT without one. */
towpath_error towpath_request_header(const towpath_request *request, const char *name, towpath_bytes *value);

/* Everything that happened to the request, as JSON: every question, attempt and try, with times. After END, for
 * requests that were made; TOWPATH_ERROR_ABSENT for others. The keys are told in docs/client-c.md. Also ended by a NUL.
 */
towpath_error towpath_request_record(const towpath_request *request, towpath_bytes *json);

/* Gives a request back. TOWPATH_ERROR_STATE, and nothing is freed, before its END was told: cancel it and wait for
 * that. */
towpath_error towpath_request_free(towpath_request *request);

/* ---- Outbox: requests that survive the process. Since 1.1 -------------------------------------------------------- */

enum { TOWPATH_OUTCOME_ANSWERED = 1, TOWPATH_OUTCOME_EXPIRED = 2 };

/* How a request ended. Pointers are valid during the call. */
typedef struct towpath_outbox_end {
    size_t size; /* sizeof(towpath_outbox_end), as the library knows it */
    uint64_t entry;
    void *user;          /* what was given with the outbox */
    const char *key;     /* the value of its Idempotency-Key */
    const uint8_t *body; /* ANSWERED: the beginning of the response's body … */
    size_t body_length;
    uint32_t outcome;
    uint32_t status; /* ANSWERED: 200 to 599 */
    uint32_t whole;  /* ANSWERED: not 0: … which is all of it */
} towpath_outbox_end;

typedef struct towpath_outbox_options {
    size_t size; /* sizeof(towpath_outbox_options) */

    const char *path; /* of the file, which need not be there yet */

    /* Is told each end, on the outbox's own thread: at least once, again in the next life if the process died in it. It
     * may block, and put new requests; it must not free the outbox. May be NULL. */
    void (*on_end)(const towpath_outbox_end *end);
    void *user; /* comes back in every end */

    uint64_t max_bytes;       /* of all requests: 16777216, at most 268435456 */
    uint32_t max_entries;     /* 1000, at most 10000 */
    uint32_t parallel;        /* under way at the same time: 4 */
    uint32_t expires_after_s; /* when a request is given up: 604800, or TOWPATH_NONE */
    uint32_t first_pause_ms;  /* after a failure, doubled for each further one: 1000 … */
    uint32_t longest_pause_ms; /* … up to 300000 */
    uint32_t response_bytes;  /* of a final answer that are kept for on_end: 4096, at most 65536, or TOWPATH_NONE */
} towpath_outbox_options;

/* Opens an outbox, and begins to send what is in it. It does not keep its engine running: without it, it takes requests
 * and sends none. What ends a request, and everything else, is told in docs/client.md. */
towpath_error towpath_outbox_open(towpath_engine *engine, const towpath_outbox_options *options, towpath_outbox
    **outbox);

/* Puts a request on the disk, and returns when it is there; from then on it will be sent. Of the options count url,
 * method, fields, body, idempotency_key, timeout_ms, first_byte_timeout_ms and gap_timeout_ms; the others have to be 0
 * or NULL. Those with one ordering key are sent one after the other; NULL for those that have none.
 * TOWPATH_ERROR_RESOURCE when there is no room, or the file cannot be written: then it will not be sent. entry may be
 * NULL. */
towpath_error towpath_outbox_put(towpath_outbox *outbox, const towpath_request_options *request, const char
    *ordering_key, uint64_t *entry);

/* Takes a request out and gives it up, without an end. One that is under way may have been processed.
 * TOWPATH_ERROR_ABSENT when it has ended. */
towpath_error towpath_outbox_remove(towpath_outbox *outbox, uint64_t entry);

/* How many have not ended, or their end was not told. */
uint64_t towpath_outbox_count(const towpath_outbox *outbox);

/* Waits until that is none: TOWPATH_OK; or up to timeout_ms, a negative one as long as it takes: TOWPATH_ERROR_ABSENT.
 * Refused in on_end. */
towpath_error towpath_outbox_wait(towpath_outbox *outbox, int32_t timeout_ms);

/* Closes it; on_end is not called any more. What has not ended stays in the file. Refused in on_end. */
towpath_error towpath_outbox_free(towpath_outbox *outbox);

/* ---- Links: one long-lived connection, on which both sides may ask. Since 1.2 ------------------------------------ */

typedef struct towpath_link_options {
    size_t size; /* sizeof(towpath_link_options) */

    const char *url; /* tcp://host:port, or tls://host:port as the engine's options say */

    /* Is given what the server sends on its own, on the link's thread. The push is to be given back by
     * towpath_push_answer: in there, or later by any thread. NULL: the server is told that there is no processor
     * (status 6). */
    void (*on_push)(towpath_push *push, void *user);
    void *user; /* comes back in on_push */

    uint32_t beat_timeout_ms;    /* that a heartbeat may be without an answer: 5000 */
    uint32_t connect_timeout_ms; /* for a round of attempts: 10000 */
    uint32_t first_pause_ms;     /* after a round that came to nothing, doubled for each further one: 1000 ... */
    uint32_t longest_pause_ms;   /* ... up to 300000 */
    uint32_t max_asks;           /* under way: 1024, at most 65536 */
    uint32_t max_bytes;          /* of them: 4194304 */
    uint32_t max_frame;          /* bytes of the longest frame that the server may send: 4194304 */
    /* heartbeats are sent after a silence that is learned, and is no shorter than this: 45, ... */
    uint32_t shortest_silence_s;
    uint32_t first_silence_s;    /* ... begins with this: 210, ... */
    uint32_t longest_silence_s;  /* ... and is no longer than this: 600 */
} towpath_link_options;

/* How a request on a link ended. Pointers are valid during the call, and nothing of it is to be changed. */
typedef struct towpath_answer {
    size_t size;              /* sizeof(towpath_answer), as the library knows it */
    void *user;               /* what was given with the request */
    towpath_bytes class_name; /* of the content */
    const uint8_t *content;
    size_t length;
    const char *text;    /* the error in words; "" without one */
    const void *own;     /* the library's own */
    towpath_error error; /* TOWPATH_OK if there is an answer, whatever its status */
    uint32_t status;     /* what the server says: 0 is success (Bolt, see docs/bolt.md) */
} towpath_answer;

typedef struct towpath_ask_options {
    size_t size; /* sizeof(towpath_ask_options) */

    const void *content;
    size_t length;
    const char *class_name; /* of the content, at most 32767 bytes: "" */
    const towpath_field *headers; /* all together at most 32767 bytes */
    size_t header_count;

    /* Is told the end, exactly once, on the link's thread, or on the one that gives it up. */
    void (*on_answer)(const towpath_answer *answer);
    void *user; /* comes back in the answer */

    uint32_t timeout_ms; /* until the answer, with all waiting: 15000 */
    uint32_t waits;      /* not 0: wait for a connection where it would end with TOWPATH_ERROR_NOT_CONNECTED */
    uint32_t codec;      /* how the content is serialised, 0 to 255; 1 is Hessian 2 */
    uint32_t reserved;   /* 0 */
} towpath_ask_options;

/* How a link is. */
typedef struct towpath_link_state {
    size_t size;          /* sizeof(towpath_link_state) */
    uint64_t connections; /* that there were */
    uint64_t heartbeats;  /* that were sent */
    uint64_t wakeups;     /* of its thread */
    uint64_t interval_ms; /* the silence after which the next heartbeat is sent */
    uint32_t connected;   /* not 0: there is a connection */
    towpath_error failure; /* why there was none when one was last tried for; TOWPATH_OK since the server has spoken */
} towpath_link_state;

/* Opens a link. The connection comes on its own, and again when it is lost. */
towpath_error towpath_link_open(towpath_engine *engine, const towpath_link_options *options, towpath_link **link);

/* Sends a request. When this fails on_answer is not called. *ask is the number by which it can be given up, and may be
 * NULL. A request whose connection is lost ends with TOWPATH_ERROR_DISCONNECTED: it may have been processed. Nothing is
 * sent twice. */
towpath_error towpath_link_ask(towpath_link *link, const towpath_ask_options *options, uint64_t *ask);

/* Sends what wants no answer. on_answer may be NULL; else it is called when this is on its way, where it may be lost.
 */
towpath_error towpath_link_tell(towpath_link *link, const towpath_ask_options *options);

/* Gives a request up: it ends with TOWPATH_ERROR_CANCELLED before this returns. TOWPATH_ERROR_ABSENT when it has ended.
 */
towpath_error towpath_link_cancel(towpath_link *link, uint64_t ask);

/* Whether a user looks on: heartbeats come more often then, so that a dead link is found sooner. */
towpath_error towpath_link_foreground(towpath_link *link, int32_t in_foreground);

/* Tells how it is. Set state->size before. */
towpath_error towpath_link_look(towpath_link *link, towpath_link_state *state);

/* Waits until it is connected (or, with 0, until it is not): TOWPATH_OK; or up to timeout_ms, a negative one as long as
 * it takes: TOWPATH_ERROR_ABSENT. Refused in callbacks and on the thread of the engine's runner. */
towpath_error towpath_link_wait(towpath_link *link, int32_t connected, int32_t timeout_ms);

/* Closes it. What has not ended ends with TOWPATH_ERROR_STOPPED before this returns. Pushes still have to be given
 * back. Refused in callbacks. */
towpath_error towpath_link_free(towpath_link *link);

/* The first value of a header of an answer; TOWPATH_ERROR_ABSENT without one. */
towpath_error towpath_answer_header(const towpath_answer *answer, const char *name, towpath_bytes *value);

/* What a push has; valid until it is given back. */
towpath_error towpath_push_content(const towpath_push *push, towpath_bytes *content);
towpath_error towpath_push_class(const towpath_push *push, towpath_bytes *class_name);
towpath_error towpath_push_header(const towpath_push *push, const char *name, towpath_bytes *value);

/* Not 0 if the server waits for an answer. */
uint32_t towpath_push_wants_answer(const towpath_push *push);

/* Answers a push and gives it back, unless this fails. Only status 0 (success) has content. It goes nowhere if no
 * answer is wanted, or the connection is gone. */
towpath_error towpath_push_answer(towpath_push *push, uint32_t status, const void *content, size_t length);

/* ---- WebSocket: messages both ways over one connection. Since 1.7 ------------------------------------------------ */

/* What happens, in this order: at most one OPEN, any number of MESSAGE and ROOM, and exactly one END. */
enum {
    TOWPATH_SOCKET_OPEN = 1,
    TOWPATH_SOCKET_MESSAGE = 2,
    TOWPATH_SOCKET_ROOM = 3, /* a towpath_socket_send that was not taken may be made again */
    TOWPATH_SOCKET_END = 4
};

/* Pointers are valid during the call. */
typedef struct towpath_socket_event {
    size_t size; /* sizeof(towpath_socket_event), as the library knows it */
    void *user;  /* what was given with the socket */
    /* OPEN: the subprotocol that the server has chosen; MESSAGE: its bytes; END: why the server has closed, in words */
    const uint8_t *data;
    size_t length;
    const char *text; /* END: the error in words; "" without one */
    uint32_t kind;
    towpath_error error; /* END: TOWPATH_OK after the server's close */
    uint32_t is_text;    /* MESSAGE: not 0: it is UTF-8 */
    uint32_t close_code; /* END: the server's, 1005 where it gave none; 0 after an error */
    uint32_t status;     /* END: what the server answered in the place of the handshake; 0 where that is not why */
} towpath_socket_event;

typedef struct towpath_socket_options {
    size_t size; /* sizeof(towpath_socket_options) */

    /* Called by one thread at a time, the engine's or one that runs for a moment, as on_event of a request is. */
    void (*on_event)(const towpath_socket_event *event);
    void *user; /* comes back in every event */

    const char *subprotocols;   /* that are offered, as "chat.v2, chat.v1"; none */
    uint64_t max_message_bytes; /* that the server may send in one: 16777216 */
    uint32_t ping_interval_ms;  /* without anything, then it is asked: 30000, or TOWPATH_NONE */
    uint32_t pong_timeout_ms;   /* without anything after that, then it is over: 10000 */
    uint32_t close_timeout_ms;  /* for the server's answer to a close: 10000 */
    uint32_t no_compression;    /* not 0: neither sent nor taken (RFC 7692) */
} towpath_socket_options;

/* Opens a WebSocket (RFC 6455). Of the request count url (ws, wss, http or https), fields, and what says how it is sent;
 * on_event, queue, user, method and a body have to be 0 or NULL. A library that was built without (cargo feature
 * websocket) refuses. Its engine cannot be freed before it. */
towpath_error towpath_socket_open(towpath_engine *engine, const towpath_request_options *request, const
    towpath_socket_options *options, towpath_socket **socket);

/* Sends a message. With sent, *sent is 1 where there was room for it, and 0 where there was not: a ROOM event follows.
 * With NULL it waits for room, and is refused in callbacks. Fails before OPEN and after a close. */
towpath_error towpath_socket_send(towpath_socket *socket, uint32_t is_text, const void *data, size_t length, uint32_t
    *sent);

/* Closes it: what was sent before leaves first, and what the server had sent still comes. code 0 is 1000; others are
 * 1000 to 1003, 1007 to 1014 and 3000 to 4999. reason may be NULL. */
towpath_error towpath_socket_close(towpath_socket *socket, uint32_t code, const char *reason);

/* Gives a socket back. TOWPATH_ERROR_STATE, and nothing is freed, before its END was told, and in callbacks: close it
 * and wait for that. */
towpath_error towpath_socket_free(towpath_socket *socket);

/* ---- Server-sent events, over connections that break. Since 1.9 -------------------------------------------------- */

/* What happens: OPEN, EVENT and BREAK any number of times, and exactly one END, which is the last. */
enum {
    TOWPATH_STREAM_OPEN = 1,  /* there is a connection; again for each further one */
    TOWPATH_STREAM_EVENT = 2,
    TOWPATH_STREAM_BREAK = 3, /* there is none any more, or not yet; it is asked for again, from the last id on */
    TOWPATH_STREAM_END = 4
};

/* Pointers are valid during the call. */
typedef struct towpath_stream_event {
    size_t size; /* sizeof(towpath_stream_event), as the library knows it */
    void *user;  /* what was given with the stream */
    towpath_bytes name; /* EVENT: its type; "message" where the server gave none */
    towpath_bytes data; /* EVENT: its lines, with line feeds between them; UTF-8 */
    towpath_bytes id;   /* that the last event had; what it began with before the first, or nothing */
    const char *text;   /* BREAK: why, in words; END: the error in words, "" without one */
    uint32_t kind;
    towpath_error error; /* END: TOWPATH_OK where the server has no more (204); TOWPATH_ERROR_CANCELLED after a close */
    uint32_t status;     /* END: what the server answered in place of events; 0 where that is not why */
    uint32_t reserved;
} towpath_stream_event;

typedef struct towpath_stream_options {
    size_t size; /* sizeof(towpath_stream_options) */

    /* Called on a thread of the stream's own, one call after the other, perhaps before towpath_stream_open returns. It
     * may block: what it does not take stays with the server. */
    void (*on_event)(const towpath_stream_event *event);
    void *user; /* comes back in every event */

    const char *last_event_id; /* of another life, to go on from */
    uint64_t max_event_bytes;  /* of one event with all its lines: 1048576; a longer one ends it */
} towpath_stream_options;

/* Asks for a stream of events (WHATWG HTML section 9.2), and again whenever it breaks: with which pauses, and what ends
 * it, is told in docs/client.md. on_event, queue and user of the request have to be NULL, and body_follows 0; limits on
 * time are each connection's, and gap_timeout_ms is 90000 here. Its engine cannot be freed before it. */
towpath_error towpath_stream_open(towpath_engine *engine, const towpath_request_options *request, const
    towpath_stream_options *options, towpath_stream **stream);

/* Ends it, unless it is over, and does not wait for its END. May be called in on_event. */
towpath_error towpath_stream_close(towpath_stream *stream);

/* Gives a stream back. TOWPATH_ERROR_STATE, and nothing is freed, before its END was told, and in callbacks: close it
 * and wait for that. */
towpath_error towpath_stream_free(towpath_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
