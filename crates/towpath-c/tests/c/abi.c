/*
 * abi ORIGIN OUTBOX LINK: what towpath.h promises, held against the library. The origin is that of tests/programs.rs;
 * its paths say what it does; the outbox is a file that need not be there; the link is a URL of a server of
 * tests/programs.rs, which does what the content of a request says. Stops at the first promise that is broken.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towpath.h>

#define CHECK(what)                                                                                    \
    do {                                                                                               \
        if (!(what)) {                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __func__, __LINE__, #what, towpath_last_error()); \
            abort();                                                                                   \
        }                                                                                              \
    } while (0)

enum { WINDOW = 64 * 1024, BIG = 4 * 1024 * 1024, HELD = 4096 };

static char url_text[8][256];
static const char *origin;

static const char *url(const char *path)
{
    static int next;
    char *text = url_text[next++ % 8];
    snprintf(text, sizeof *url_text, "%s%s", origin, path);
    return text;
}

static towpath_request_options options_for(const char *path)
{
    towpath_request_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.url = url(path);
    return options;
}

static towpath_engine *new_engine(void)
{
    towpath_engine_options options;
    towpath_engine *engine;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.window_bytes = WINDOW;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK && engine != NULL);
    return engine;
}

static towpath_queue *new_queue(void)
{
    towpath_queue *queue;
    CHECK(towpath_queue_new(&queue) == TOWPATH_OK && queue != NULL);
    return queue;
}

/* The next event; never NONE. */
static towpath_event next(towpath_queue *queue)
{
    towpath_event event;
    event.size = sizeof event;
    CHECK(towpath_queue_next(queue, &event, -1) == TOWPATH_OK);
    CHECK(event.kind != TOWPATH_EVENT_NONE && event.size == sizeof event);
    return event;
}

static towpath_event none(towpath_queue *queue, int32_t timeout_ms)
{
    towpath_event event;
    event.size = sizeof event;
    CHECK(towpath_queue_next(queue, &event, timeout_ms) == TOWPATH_OK);
    return event;
}

static int is(towpath_bytes bytes, const char *text)
{
    return bytes.length == strlen(text) && memcmp(bytes.data, text, bytes.length) == 0;
}

static void a_response_comes_with_fields_trailers_and_record(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/trailers");
    towpath_request *request;
    towpath_bytes name, value;
    towpath_event event;
    char body[64];
    size_t length = 0;
    int user;

    options.queue = queue;
    options.user = &user;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(towpath_request_record(request, &value) == TOWPATH_ERROR_ABSENT);
    CHECK(strcmp(towpath_request_http_version(NULL), "") == 0);

    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_HEAD && event.request == request && event.user == &user);
    CHECK(towpath_request_status(request) == 200);
    CHECK(strcmp(towpath_request_http_version(request), "HTTP/1.1") == 0);
    CHECK(towpath_request_header(request, "X-CASE", &value) == TOWPATH_OK && is(value, "kept"));
    CHECK(towpath_request_header(request, "x-other", &value) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_request_field(request, TOWPATH_FIELDS_HEAD, 0, &name, &value) == TOWPATH_OK && is(name, "X-Case"));
    CHECK(towpath_request_field(request, TOWPATH_FIELDS_HEAD, 0, NULL, NULL) == TOWPATH_OK);
    CHECK(towpath_request_field(request, TOWPATH_FIELDS_HEAD, 99, &name, &value) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_request_free(request) == TOWPATH_ERROR_STATE);

    for (event = next(queue); event.kind == TOWPATH_EVENT_DATA; event = next(queue)) {
        CHECK(event.length > 0 && length + event.length <= sizeof body);
        memcpy(body + length, event.data, event.length);
        length += event.length;
        towpath_chunk_release(event.chunk);
    }
    CHECK(length == 5 && memcmp(body, "hello", 5) == 0);
    CHECK(event.kind == TOWPATH_EVENT_TRAILERS);
    CHECK(towpath_request_field(request, TOWPATH_FIELDS_TRAILERS, 0, &name, &value) == TOWPATH_OK);
    CHECK(is(name, "X-Sum") && is(value, "5d41"));

    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_END && event.error == TOWPATH_OK && event.text[0] == '\0');
    CHECK(none(queue, 0).kind == TOWPATH_EVENT_NONE);
    CHECK(towpath_request_record(request, &value) == TOWPATH_OK && strlen(value.data) == value.length);
    CHECK(strstr(value.data, "\"status\":200") && strstr(value.data, "\"outcome\":\"connected\""));
    CHECK(towpath_request_cancel(request) == TOWPATH_OK);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
}

static void chunks_that_are_held_keep_the_server_back(towpath_engine *engine)
{
    static towpath_chunk *held[HELD];
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/big");
    towpath_request *request;
    towpath_event event;
    size_t count = 0, bytes = 0, all = 0;

    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(next(queue).kind == TOWPATH_EVENT_HEAD);
    while ((event = none(queue, 200)).kind == TOWPATH_EVENT_DATA) {
        CHECK(count < HELD);
        held[count++] = event.chunk;
        bytes += event.length;
    }
    /* The window, and what had been read before it was seen to be full. */
    CHECK(event.kind == TOWPATH_EVENT_NONE && bytes > 0 && bytes <= WINDOW + 128 * 1024);
    all = bytes;
    while (count > 0)
        towpath_chunk_release(held[--count]);
    for (event = next(queue); event.kind == TOWPATH_EVENT_DATA; event = next(queue)) {
        all += event.length;
        towpath_chunk_release(event.chunk);
    }
    CHECK(event.kind == TOWPATH_EVENT_END && event.error == TOWPATH_OK && all == BIG);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
}

/* Sends what there is room for; returns what is left. */
static size_t pump(towpath_request *request, size_t left)
{
    static const char zeros[10000];
    while (left > 0) {
        size_t piece = left < sizeof zeros ? left : sizeof zeros, taken = 1;
        CHECK(towpath_request_write(request, zeros, piece, &taken) == TOWPATH_OK && taken <= piece);
        left -= taken;
        if (taken < piece)
            return left;
    }
    CHECK(towpath_request_finish(request) == TOWPATH_OK);
    return 0;
}

static void a_body_goes_up_as_there_is_room(towpath_engine *engine, uint64_t promised)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/length");
    towpath_request *request;
    towpath_event event;
    size_t left = BIG, taken = 1;
    int rooms = 0;
    char length[32];

    options.method = "PUT";
    options.queue = queue;
    options.body_follows = 1;
    options.content_length = promised;
    options.wait_for_network = 1;
    /* Nothing leaves, so that the room is used up at some time. */
    CHECK(towpath_engine_network(engine, "", TOWPATH_NETWORK_FIXED, 0) == TOWPATH_OK);
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    left = pump(request, left);
    CHECK(left > 0);
    CHECK(towpath_engine_network(engine, "", TOWPATH_NETWORK_FIXED, 1) == TOWPATH_OK);
    while ((event = next(queue)).kind == TOWPATH_EVENT_ROOM) {
        rooms++;
        left = pump(request, left);
    }
    CHECK(left == 0 && rooms > 0 && event.kind == TOWPATH_EVENT_HEAD);
    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_DATA);
    snprintf(length, sizeof length, "%d", BIG);
    CHECK(event.length == strlen(length) && memcmp(event.data, length, event.length) == 0);
    towpath_chunk_release(event.chunk);
    CHECK(next(queue).kind == TOWPATH_EVENT_END);
    CHECK(towpath_request_write(request, "x", 1, &taken) == TOWPATH_ERROR_BODY && taken == 0);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
}

static void a_promised_length_is_kept(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/length");
    towpath_request *request;
    towpath_event event;
    size_t taken;

    options.method = "PUT";
    options.queue = queue;
    options.body_follows = 1;
    options.content_length = 3;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(towpath_request_write(request, "four", 4, &taken) == TOWPATH_ERROR_BODY && taken == 0);
    CHECK(towpath_request_write(request, "tw", 2, &taken) == TOWPATH_OK && taken == 2);
    CHECK(towpath_request_finish(request) == TOWPATH_ERROR_BODY);
    CHECK(strstr(towpath_last_error(), "less") != NULL);
    CHECK(towpath_request_cancel(request) == TOWPATH_OK);
    CHECK(towpath_request_cancel(request) == TOWPATH_OK);
    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_END && event.error == TOWPATH_ERROR_CANCELLED && event.text[0] != '\0');
    CHECK(none(queue, 0).kind == TOWPATH_EVENT_NONE);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
}

/* One request to its end: its status, whether its coding is told, and what came of it. */
static towpath_error fetch(towpath_engine *engine, towpath_request_options *options, uint32_t *status, int *coded, char body[64])
{
    towpath_queue *queue = new_queue();
    towpath_request *request;
    towpath_event event;
    towpath_bytes value;
    size_t length = 0;

    options->queue = queue;
    CHECK(towpath_request_start(engine, options, &request) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END) {
        CHECK(length + event.length < 64);
        if (event.length > 0)
            memcpy(body + length, event.data, event.length);
        length += event.length;
        towpath_chunk_release(event.chunk);
    }
    body[length] = '\0';
    *status = towpath_request_status(request);
    *coded = towpath_request_header(request, "content-encoding", &value) == TOWPATH_OK;
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
    return event.error;
}

static void answers_are_followed_and_decoded_where_it_is_asked_for(towpath_engine *engine)
{
    towpath_request_options options = options_for("/moved");
    uint32_t status;
    char body[64];
    int coded;

    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 302);
    CHECK(strcmp(body, "elsewhere") == 0);
    options.redirects = 5;
    options.decode = 1;
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 200);
    CHECK(!coded && strcmp(body, "hello") == 0);
    options.url = url("/loop");
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 302);
    options.url = url("/damaged");
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_ERROR_DECODING && status == 200);
    options.decode = 0;
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && coded && strcmp(body, "not gzip") == 0);
    options.url = url("/never");
    options.retries = TOWPATH_NONE;
    options.attempt_timeout_ms = 50;
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_ERROR_ATTEMPT_TIMEOUT);
    options.attempt_timeout_ms = 0;
    options.answer_timeout_ms = 50;
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_ERROR_TOTAL_TIMEOUT);
}

/* An engine that keeps everything in files that begin so. */
static towpath_engine *keeping_engine(const char *path, char paths[3][512])
{
    static const char *const endings[3] = { "cookies", "hsts", "cache" };
    towpath_engine_options options;
    towpath_engine *engine;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s.%s", path, endings[i]);
    options.cookies_path = paths[0];
    options.hsts_path = paths[1];
    options.cache_path = paths[2];
    options.cache_bytes = 1 << 20;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    return engine;
}

static void what_is_kept_is_there_in_the_next_life(const char *path)
{
    char paths[3][512], body[64], first[64];
    uint32_t status;
    int coded;

    for (int life = 0; life < 2; life++) {
        towpath_engine *engine = keeping_engine(path, paths);
        towpath_request_options options = options_for("/cookie");
        CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK);
        CHECK(strcmp(body, life == 0 ? "none" : "a=1") == 0);
        for (int again = 0; again < 2; again++) {
            options = options_for("/kept");
            CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 200);
            if (life == 0 && again == 0)
                strcpy(first, body);
            CHECK(strcmp(body, first) == 0);
        }
        if (life == 0) {
            towpath_engine_options second;
            towpath_engine *other;
            memset(&second, 0, sizeof second);
            second.size = sizeof second;
            second.cache_path = paths[2];
            CHECK(towpath_engine_new(&second, &other) == TOWPATH_ERROR_RESOURCE && other == NULL);
            second.cache_path = NULL;
            second.cache_bytes = 1;
            CHECK(towpath_engine_new(&second, &other) == TOWPATH_ERROR_ARGUMENT);
        }
        CHECK(towpath_engine_keep(engine) == TOWPATH_OK);
        CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    }
    CHECK(towpath_engine_keep(NULL) == TOWPATH_ERROR_ARGUMENT);
}

static void credentials_are_sent_to_servers_that_ask_for_them(towpath_engine *engine)
{
    towpath_request_options options = options_for("/private");
    towpath_queue *queue = new_queue();
    towpath_request *request;
    uint32_t status;
    int coded;
    char body[64];

    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 401);
    options.auth_user = "user";
    options.auth_password = "secret";
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 200);
    CHECK(strcmp(body, "welcome") == 0);
    options.auth_password = "wrong";
    CHECK(fetch(engine, &options, &status, &coded, body) == TOWPATH_OK && status == 401);
    options.auth_user = NULL;
    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT && request == NULL);
    towpath_queue_free(queue);
}

/* How the app is asked, and what it says. */
static struct challenged {
    const char *user, *password, *field;
    int asked, of_proxy;
    uint32_t attempt;
} challenged;

static void on_challenge(const towpath_challenge *challenge)
{
    struct challenged *it = challenge->user;
    towpath_bytes name, value;

    CHECK(challenge->size == sizeof *challenge && it == &challenged);
    CHECK(strcmp(challenge->host, "127.0.0.1") == 0 && challenge->port != 0 && challenge->is_secure == 0);
    CHECK(towpath_challenge_scheme(challenge, 0, &name) == TOWPATH_OK && is(name, "Basic"));
    CHECK(towpath_challenge_parameter(challenge, 0, "REALM", &value) == TOWPATH_OK);
    CHECK(is(value, challenge->is_of_proxy ? "proxy" : "x"));
    CHECK(towpath_challenge_parameter(challenge, 0, "nonce", &value) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_challenge_parameter(challenge, 9, "realm", &value) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_challenge_parameter(challenge, 0, NULL, &value) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_challenge_scheme(challenge, 9, &name) == TOWPATH_ERROR_ABSENT);
    if (towpath_challenge_scheme(challenge, 1, &name) == TOWPATH_OK) {
        CHECK(is(name, "Bearer"));
        CHECK(towpath_challenge_parameter(challenge, 1, "realm", &value) == TOWPATH_OK && is(value, "the \"realm\""));
    }
    CHECK(towpath_challenge_answer(challenge, "a:b", "") == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_challenge_answer(challenge, NULL, "") == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_challenge_answer_field(challenge, NULL) == TOWPATH_ERROR_ARGUMENT);
    if (it->user != NULL)
        CHECK(towpath_challenge_answer(challenge, it->user, it->password) == TOWPATH_OK);
    if (it->field != NULL)
        CHECK(towpath_challenge_answer_field(challenge, it->field) == TOWPATH_OK);
    it->asked++;
    it->of_proxy += challenge->is_of_proxy != 0;
    it->attempt = challenge->attempt;
}

static void the_app_is_asked_for_credentials(void)
{
    towpath_engine_options options;
    towpath_request_options request = options_for("/private");
    towpath_engine *engine;
    uint32_t status;
    int coded;
    char body[64];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.on_challenge = on_challenge;
    options.challenge_user = &challenged;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 401);
    CHECK(challenged.asked == 1 && challenged.of_proxy == 0 && challenged.attempt == 0);
    challenged.user = "user";
    challenged.password = "secret";
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 200);
    CHECK(challenged.asked == 2 && strcmp(body, "welcome") == 0);
    challenged.password = NULL;
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 401);
    CHECK(challenged.asked == 5 && challenged.attempt == 2);
    /* What the request brings goes before. */
    request.auth_user = "user";
    request.auth_password = "secret";
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 200 && challenged.asked == 5);
    request = options_for("/token");
    challenged.field = "Bearer abc";
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && strcmp(body, "token") == 0);
    CHECK(challenged.asked == 6);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);

    /* The origin as a proxy. */
    options.proxy = origin;
    challenged.field = NULL;
    challenged.user = NULL;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    request.url = "http://elsewhere.test/";
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 407);
    CHECK(challenged.asked == 7 && challenged.of_proxy == 1);
    challenged.user = "user";
    challenged.password = "secret";
    for (int again = 0; again < 2; again++)
        CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && strcmp(body, "forwarded") == 0);
    CHECK(challenged.asked == 8);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    CHECK(towpath_challenge_answer(NULL, "user", "secret") == TOWPATH_ERROR_ARGUMENT);
}

static void whom_to_ask_for_names_is_the_app_s_choice(void)
{
    towpath_engine_options options;
    towpath_engine *engine;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.dns_servers = "127.0.0.1:1,nonsense";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_ARGUMENT && engine == NULL);
    CHECK(strstr(towpath_last_error(), "nonsense") != NULL);
    options.dns_servers = "127.0.0.1:1,[::1]:1,::1,[::1]";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    options.dns_servers = NULL;
    options.system_resolver = 1;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    options.reserved = 1;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_ARGUMENT);
}

static void names_are_asked_of_a_server_over_https(const char *url, const char *roots)
{
    towpath_engine_options options;
    towpath_request_options request;
    towpath_engine *engine;
    uint32_t status;
    int coded;
    char body[64], there[128];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.roots_pem = roots;
    options.doh_timeout_ms = 5000;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_ARGUMENT && engine == NULL);
    options.doh_url = "http://dns.test/dns-query";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_URL && engine == NULL);
    CHECK(strstr(towpath_last_error(), "https") != NULL);
    options.doh_url = url;
    options.doh_addresses = "127.0.0.1,nonsense";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_ARGUMENT);
    CHECK(strstr(towpath_last_error(), "nonsense") != NULL);
    options.doh_addresses = "127.0.0.1";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    request = options_for("/length");
    request.url = there;
    snprintf(there, sizeof there, "http://app.test%s/length", strrchr(origin, ':'));
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK && status == 200);
    snprintf(there, sizeof there, "http://none.test%s/length", strrchr(origin, ':'));
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_ERROR_RESOLVE);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
}

/* Nothing listens at the proxy: a request that goes through it fails, one that does not is answered. */
static void requests_go_through_a_proxy_where_one_is_set(void)
{
    towpath_engine_options options;
    towpath_request_options request = options_for("/length");
    towpath_engine *engine;
    uint32_t status;
    int coded;
    char body[64];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.proxy = "socks4://127.0.0.1:1";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_ERROR_ARGUMENT && engine == NULL);
    CHECK(strstr(towpath_last_error(), "version 5") != NULL);
    options.proxy = "socks5://127.0.0.1:1";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_ERROR_CONNECT);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    options.no_proxy = "127.0.0.0/8";
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    options.no_proxy = NULL;
    options.proxy = "";
    options.proxy_from_environment = 1;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(fetch(engine, &request, &status, &coded, body) == TOWPATH_OK);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
}

/* What a request that is told to a function went through. */
struct heard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int heads, ends, cancel, free;
    towpath_error error;
    towpath_engine *engine;
    towpath_chunk *kept;
};

static void hear(const towpath_event *event)
{
    struct heard *heard = event->user;
    towpath_event waiting;
    towpath_queue *queue;

    pthread_mutex_lock(&heard->lock);
    CHECK(heard->ends == 0);
    if (event->kind == TOWPATH_EVENT_HEAD) {
        heard->heads++;
        /* Neither would ever return. */
        CHECK(towpath_engine_free(heard->engine) == TOWPATH_ERROR_STATE);
        queue = new_queue();
        waiting.size = sizeof waiting;
        CHECK(towpath_queue_next(queue, &waiting, -1) == TOWPATH_ERROR_STATE);
        towpath_queue_free(queue);
        if (heard->cancel)
            CHECK(towpath_request_cancel(event->request) == TOWPATH_OK);
    } else if (event->kind == TOWPATH_EVENT_DATA) {
        towpath_chunk_release(heard->kept);
        heard->kept = event->chunk;
    } else if (event->kind == TOWPATH_EVENT_END) {
        heard->ends++;
        heard->error = event->error;
        if (heard->free)
            CHECK(towpath_request_free(event->request) == TOWPATH_OK);
    }
    pthread_cond_signal(&heard->changed);
    pthread_mutex_unlock(&heard->lock);
}

static void wait_for(struct heard *heard, const int *count)
{
    pthread_mutex_lock(&heard->lock);
    while (*count == 0)
        pthread_cond_wait(&heard->changed, &heard->lock);
    pthread_mutex_unlock(&heard->lock);
}

static void functions_may_cancel_and_free(towpath_engine *engine)
{
    struct heard heard = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 1, 1, 0, engine, NULL };
    towpath_request_options options = options_for("/big");
    towpath_request *request;

    options.on_event = hear;
    options.user = &heard;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    wait_for(&heard, &heard.ends);
    CHECK(heard.heads == 1 && heard.error == TOWPATH_ERROR_CANCELLED);
    towpath_chunk_release(heard.kept);
}

static void an_engine_that_is_freed_ends_its_requests_first(void)
{
    towpath_engine *engine = new_engine();
    struct heard heard = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0, engine, NULL };
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/half");
    towpath_request *told, *queued;
    towpath_bytes record;
    towpath_event event;

    options.on_event = hear;
    options.user = &heard;
    CHECK(towpath_request_start(engine, &options, &told) == TOWPATH_OK);
    options.on_event = NULL;
    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &queued) == TOWPATH_OK);
    wait_for(&heard, &heard.heads);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    CHECK(heard.ends == 1 && heard.error == TOWPATH_ERROR_STOPPED);
    /* All of these outlive the engine. */
    towpath_chunk_release(heard.kept);
    CHECK(towpath_request_status(told) == 200);
    CHECK(towpath_request_record(told, &record) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_request_free(told) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    CHECK(event.error == TOWPATH_ERROR_STOPPED);
    CHECK(towpath_request_free(queued) == TOWPATH_OK);
    towpath_queue_free(queue);
}

static void a_queue_that_is_freed_gives_its_requests_up(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/never");
    towpath_request *request;

    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(towpath_request_free(request) == TOWPATH_ERROR_STATE);
    towpath_queue_free(queue);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
}

static void requests_wait_for_one_another(int whatever_their_origin)
{
    towpath_engine_options engine_options;
    towpath_engine *engine;
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/never");
    towpath_request *first, *given_up, *second;
    towpath_event event;

    memset(&engine_options, 0, sizeof engine_options);
    engine_options.size = sizeof engine_options;
    if (whatever_their_origin)
        engine_options.max_requests_under_way = 1;
    else
        engine_options.max_requests_per_origin = 1;
    CHECK(towpath_engine_new(&engine_options, &engine) == TOWPATH_OK);
    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &first) == TOWPATH_OK);
    options.url = url("/trailers");
    CHECK(towpath_request_start(engine, &options, &given_up) == TOWPATH_OK);
    CHECK(towpath_request_start(engine, &options, &second) == TOWPATH_OK);
    CHECK(none(queue, 200).kind == TOWPATH_EVENT_NONE);
    CHECK(towpath_request_cancel(given_up) == TOWPATH_OK);
    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_END && event.request == given_up && event.error == TOWPATH_ERROR_CANCELLED);
    CHECK(none(queue, 100).kind == TOWPATH_EVENT_NONE);
    CHECK(towpath_request_cancel(first) == TOWPATH_OK);
    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_END && event.request == first && event.error == TOWPATH_ERROR_CANCELLED);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    CHECK(event.request == second && event.error == TOWPATH_OK && towpath_request_status(second) == 200);
    CHECK(towpath_request_free(first) == TOWPATH_OK && towpath_request_free(given_up) == TOWPATH_OK);
    CHECK(towpath_request_free(second) == TOWPATH_OK);
    towpath_queue_free(queue);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
}

static void what_cannot_be_is_refused(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/");
    towpath_engine_options engine_options;
    towpath_engine *other = (towpath_engine *)1;
    towpath_request *request = (towpath_request *)1;
    towpath_event event;
    towpath_bytes bytes;
    towpath_field field = { "x y", "z" };
    size_t taken;
    struct {
        towpath_request_options known;
        uint64_t unknown;
    } newer;

    CHECK(towpath_abi_version() == TOWPATH_ABI_VERSION);
    CHECK(strchr(towpath_version(), '.') != NULL);
    for (towpath_error error = -1; error < 60; error++)
        CHECK(towpath_error_text(error)[0] != '\0');

    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT && request == NULL);
    options.queue = queue;
    options.on_event = hear;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.on_event = NULL;
    CHECK(towpath_request_start(engine, &options, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_start(NULL, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_start(engine, NULL, &request) == TOWPATH_ERROR_ARGUMENT);
    options.size = 0;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.size = offsetof(towpath_request_options, hedge) - 1;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.size = sizeof options;
    options.url = NULL;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.url = "http://\xff/";
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    CHECK(strstr(towpath_last_error(), "UTF-8") != NULL);
    options.url = "ftp://127.0.0.1/";
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_URL && request == NULL);
    options.url = url("/");
    options.method = "G T";
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_TOKEN);
    options.method = NULL;
    options.fields = &field;
    options.field_count = 1;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_TOKEN);
    options.fields = NULL;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.field_count = 0;
    options.repeat = 3;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.repeat = 0;
    options.priority = 3;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);
    options.priority = TOWPATH_PRIORITY_LOW;
    options.body = "both";
    options.body_length = 4;
    options.body_follows = 1;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT);

    newer.known = options_for("/");
    newer.known.size = sizeof newer;
    newer.known.queue = queue;
    newer.unknown = 1;
    CHECK(towpath_request_start(engine, &newer.known, &request) == TOWPATH_ERROR_ARGUMENT);
    newer.unknown = 0;
    CHECK(towpath_request_start(engine, &newer.known, &request) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    CHECK(towpath_request_free(request) == TOWPATH_OK);

    memset(&engine_options, 0, sizeof engine_options);
    CHECK(towpath_engine_new(&engine_options, &other) == TOWPATH_ERROR_ARGUMENT && other == NULL);
    engine_options.size = sizeof engine_options;
    engine_options.window_bytes = 1;
    CHECK(towpath_engine_new(&engine_options, &other) == TOWPATH_ERROR_ARGUMENT);
    engine_options.window_bytes = 0;
    engine_options.identity_key_pem = "a key without a chain";
    CHECK(towpath_engine_new(&engine_options, &other) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_engine_new(NULL, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_engine_free(NULL) == TOWPATH_OK);
    CHECK(towpath_engine_network(engine, NULL, TOWPATH_NETWORK_FIXED, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_engine_network(engine, "x", 2, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_engine_save(engine, "/nowhere/at/all") == TOWPATH_ERROR_RESOURCE);
    CHECK(towpath_engine_save(engine, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_engine_wakeups(NULL) == 0 && towpath_engine_wakeups(engine) > 0);

    event.size = 1;
    CHECK(towpath_queue_next(queue, &event, 0) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_queue_next(queue, NULL, 0) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_queue_next(NULL, &event, 0) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_queue_new(NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_queue_fd(NULL) == -1);
    towpath_queue_free(NULL);
    towpath_chunk_release(NULL);

    CHECK(towpath_request_write(NULL, "x", 1, &taken) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_finish(NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_cancel(NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_status(NULL) == 0);
    CHECK(towpath_request_field(NULL, 0, 0, &bytes, &bytes) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_header(NULL, "x", &bytes) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_record(NULL, &bytes) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_request_free(NULL) == TOWPATH_OK);
    towpath_queue_free(queue);
}

static void without_a_network_nothing_is_tried(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/");
    towpath_request *request;
    towpath_event event;

    CHECK(towpath_engine_network(engine, "", TOWPATH_NETWORK_MOBILE, 0) == TOWPATH_OK);
    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    event = next(queue);
    CHECK(event.kind == TOWPATH_EVENT_END && event.error == TOWPATH_ERROR_OFFLINE);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    options.wait_for_network = 1;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(none(queue, 10).kind == TOWPATH_EVENT_NONE);
    CHECK(towpath_engine_network(engine, "home", TOWPATH_NETWORK_FIXED, 1) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    CHECK(event.error == TOWPATH_OK);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
}

/* Names that were asked for, and the question that is open. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int asked;
    towpath_question *open;
} names = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, NULL };

static void ask(towpath_question *question, void *user)
{
    const char *expected = names.asked < 2 ? "app.test" : "none.test";
    CHECK(user == &names && strcmp(towpath_question_name(question), expected) == 0);
    pthread_mutex_lock(&names.lock);
    names.asked++;
    names.open = question;
    pthread_cond_signal(&names.changed);
    pthread_mutex_unlock(&names.lock);
}

static towpath_question *asked(int times)
{
    towpath_question *question;
    pthread_mutex_lock(&names.lock);
    while (names.asked < times)
        pthread_cond_wait(&names.changed, &names.lock);
    question = names.open;
    pthread_mutex_unlock(&names.lock);
    return question;
}

/* What comes of a request, with all else thrown away. */
static towpath_error outcome(towpath_engine *engine, const char *where, uint32_t *status)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("");
    towpath_request *request;
    towpath_event event;

    options.url = where;
    options.queue = queue;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    *status = towpath_request_status(request);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    towpath_queue_free(queue);
    return event.error;
}

static void *answer_twice(void *nothing)
{
    static const char *const addresses[] = { "::ffff:127.0.0.2", "127.0.0.1" }, *const wrong[] = { "localhost" };
    towpath_question *question = asked(1);
    CHECK(towpath_question_answer(question, TOWPATH_ERROR_OTHER, NULL, 0) == TOWPATH_OK);
    question = asked(2);
    CHECK(towpath_question_answer(question, TOWPATH_OK, wrong, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_question_answer(question, TOWPATH_OK, NULL, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_question_answer(question, TOWPATH_OK, addresses, 2) == TOWPATH_OK);
    question = asked(3);
    CHECK(towpath_question_answer(question, TOWPATH_OK, NULL, 0) == TOWPATH_OK);
    return nothing;
}

static void names_are_asked_of_the_app(void)
{
    towpath_engine_options options;
    towpath_engine *engine;
    pthread_t thread;
    uint32_t status;
    char where[64];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.on_question = ask;
    options.question_user = &names;
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(pthread_create(&thread, NULL, answer_twice, NULL) == 0);
    snprintf(where, sizeof where, "http://APP.test:%s/trailers", strrchr(origin, ':') + 1);
    CHECK(outcome(engine, where, &status) == TOWPATH_OK && status == 200);
    CHECK(outcome(engine, "http://none.test/", &status) == TOWPATH_ERROR_RESOLVE && status == 0);
    CHECK(pthread_join(thread, NULL) == 0 && names.asked == 3);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    CHECK(towpath_question_answer(NULL, TOWPATH_OK, NULL, 0) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_question_name(NULL)[0] == '\0');

    /* With the kernel's word on the network, where it gives it: this machine is reached all the same. */
    options.on_question = NULL;
    options.watch_network = 1;
    if (towpath_engine_new(&options, &engine) == TOWPATH_OK) {
        CHECK(outcome(engine, url("/trailers"), &status) == TOWPATH_OK && status == 200);
        CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    } else {
        CHECK(engine == NULL && strstr(towpath_last_error(), "kernel") != NULL);
    }

    /* A program that was built before there were questions. */
    options.size = offsetof(towpath_engine_options, on_question);
    CHECK(towpath_engine_new(&options, &engine) == TOWPATH_OK);
    CHECK(outcome(engine, url("/trailers"), &status) == TOWPATH_OK && status == 200);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
}

static void *not_its_thread(void *runner)
{
    CHECK(towpath_runner_turn(runner, 0) == TOWPATH_ERROR_STATE);
    CHECK(towpath_runner_run(runner) == TOWPATH_ERROR_STATE);
    CHECK(towpath_runner_free(runner) == TOWPATH_ERROR_STATE);
    return NULL;
}

static void *frees(void *engine)
{
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    return NULL;
}

/* What is told on the thread that was lent. */
struct lent {
    pthread_t thread;
    towpath_runner *runner;
    int heads, ends;
    towpath_error error;
};

static void hear_lent(const towpath_event *event)
{
    struct lent *lent = event->user;
    CHECK(pthread_equal(pthread_self(), lent->thread));
    if (event->kind == TOWPATH_EVENT_HEAD) {
        lent->heads++;
        CHECK(towpath_runner_turn(lent->runner, 0) == TOWPATH_ERROR_STATE);
        CHECK(towpath_runner_free(lent->runner) == TOWPATH_ERROR_STATE);
    } else if (event->kind == TOWPATH_EVENT_END) {
        lent->ends++;
        lent->error = event->error;
        CHECK(towpath_request_free(event->request) == TOWPATH_OK);
    } else {
        towpath_chunk_release(event->chunk);
    }
}

static void an_engine_runs_on_a_thread_that_is_lent(void)
{
    struct lent lent = { pthread_self(), NULL, 0, 0, 0 };
    towpath_request_options options = options_for("/trailers");
    towpath_engine *engine;
    towpath_request *request;
    pthread_t other;

    CHECK(towpath_engine_lend(NULL, &engine, NULL) == TOWPATH_ERROR_ARGUMENT && engine == NULL);
    CHECK(towpath_engine_lend(NULL, &engine, &lent.runner) == TOWPATH_OK);
    options.on_event = hear_lent;
    options.user = &lent;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    while (lent.ends == 0)
        CHECK(towpath_runner_turn(lent.runner, -1) == TOWPATH_OK);
    CHECK(lent.heads == 1 && lent.error == TOWPATH_OK);
    CHECK(towpath_runner_turn(lent.runner, 0) == TOWPATH_OK);
    CHECK(towpath_engine_save(engine, "/nowhere/at/all") == TOWPATH_ERROR_STATE);
    CHECK(pthread_create(&other, NULL, not_its_thread, lent.runner) == 0);
    CHECK(pthread_join(other, NULL) == 0);

    options.url = url("/never");
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    CHECK(pthread_create(&other, NULL, frees, engine) == 0);
    CHECK(towpath_runner_run(lent.runner) == TOWPATH_OK);
    CHECK(pthread_join(other, NULL) == 0 && lent.ends == 1);
    CHECK(towpath_runner_free(lent.runner) == TOWPATH_OK);
    CHECK(lent.ends == 2 && lent.error == TOWPATH_ERROR_STOPPED);
    CHECK(towpath_runner_free(NULL) == TOWPATH_OK);
    CHECK(towpath_runner_turn(NULL, 0) == TOWPATH_ERROR_ARGUMENT);
}

/* Ends that were told. */
struct ended {
    pthread_mutex_t lock;
    towpath_outbox *outbox;
    int count;
    uint64_t entries[4];
};

static void hear_end(const towpath_outbox_end *end)
{
    struct ended *ended = end->user;
    pthread_mutex_lock(&ended->lock);
    CHECK(end->size == sizeof *end && ended->count < 4 && strlen(end->key) > 0);
    CHECK(towpath_outbox_free(ended->outbox) == TOWPATH_ERROR_STATE);
    CHECK(towpath_outbox_wait(ended->outbox, 0) == TOWPATH_ERROR_STATE);
    CHECK(end->outcome == TOWPATH_OUTCOME_ANSWERED && end->status == 200 && end->whole);
    CHECK(end->body_length == 1 && memcmp(end->body, "4", 1) == 0);
    if (ended->count == 1)
        CHECK(strcmp(end->key, "mine") == 0);
    ended->entries[ended->count++] = end->entry;
    pthread_mutex_unlock(&ended->lock);
}

static void an_outbox_sends_what_was_put_in_it(towpath_engine *engine, const char *path)
{
    static struct ended ended = { PTHREAD_MUTEX_INITIALIZER, NULL, 0, { 0 } };
    towpath_outbox_options options;
    towpath_request_options request = options_for("/length");
    towpath_outbox *other;
    uint64_t entries[3];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    CHECK(towpath_outbox_open(engine, &options, &other) == TOWPATH_ERROR_ARGUMENT && other == NULL);
    options.path = path;
    options.on_end = hear_end;
    options.user = &ended;
    options.max_entries = 2;
    request.body = "four";
    request.body_length = 4;

    /* Without a network it keeps what it is given. */
    CHECK(towpath_engine_network(engine, "none", TOWPATH_NETWORK_FIXED, 0) == TOWPATH_OK);
    CHECK(towpath_outbox_open(engine, &options, &ended.outbox) == TOWPATH_OK);
    CHECK(towpath_outbox_open(engine, &options, &other) == TOWPATH_ERROR_RESOURCE);
    CHECK(towpath_outbox_put(ended.outbox, &request, "ordering_key", &entries[0]) == TOWPATH_OK);
    CHECK(towpath_outbox_put(ended.outbox, &request, NULL, &entries[1]) == TOWPATH_OK);
    CHECK(towpath_outbox_put(ended.outbox, &request, NULL, NULL) == TOWPATH_ERROR_RESOURCE);
    CHECK(towpath_outbox_remove(ended.outbox, entries[1]) == TOWPATH_OK);
    CHECK(towpath_outbox_remove(ended.outbox, entries[1]) == TOWPATH_ERROR_ABSENT);
    request.retries = 1;
    CHECK(towpath_outbox_put(ended.outbox, &request, NULL, NULL) == TOWPATH_ERROR_ARGUMENT);
    request.retries = 0;
    request.url = "nonsense";
    CHECK(towpath_outbox_put(ended.outbox, &request, NULL, NULL) == TOWPATH_ERROR_URL);
    request.url = url("/length");
    request.idempotency_key = "mine";
    CHECK(towpath_outbox_put(ended.outbox, &request, "ordering_key", &entries[2]) == TOWPATH_OK);
    CHECK(towpath_outbox_count(ended.outbox) == 2);
    CHECK(towpath_outbox_wait(ended.outbox, 0) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_outbox_free(ended.outbox) == TOWPATH_OK);

    CHECK(towpath_engine_network(engine, "home", TOWPATH_NETWORK_FIXED, 1) == TOWPATH_OK);
    pthread_mutex_lock(&ended.lock);
    CHECK(towpath_outbox_open(engine, &options, &ended.outbox) == TOWPATH_OK);
    pthread_mutex_unlock(&ended.lock);
    CHECK(towpath_outbox_wait(ended.outbox, -1) == TOWPATH_OK);
    CHECK(ended.count == 2 && ended.entries[0] == entries[0] && ended.entries[1] == entries[2]);
    CHECK(towpath_outbox_free(ended.outbox) == TOWPATH_OK);
    CHECK(towpath_outbox_free(NULL) == TOWPATH_OK && towpath_outbox_count(NULL) == 0);
}

/* What a link has told. */
static struct linked {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    towpath_link *link;
    int answers, pushes;
    towpath_error error;
    uint32_t status;
    char content[32];
    towpath_push *kept;
} linked = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0, 0, "", NULL };

static void hear_answer(const towpath_answer *answer)
{
    towpath_bytes value;
    CHECK(answer->size == sizeof *answer && answer->user == &linked);
    CHECK(towpath_link_free(linked.link) == TOWPATH_ERROR_STATE);
    CHECK(towpath_link_wait(linked.link, 1, 0) == TOWPATH_ERROR_STATE);
    if (answer->length == strlen("re hello")) {
        CHECK(is(answer->class_name, "a.Class") && answer->text[0] == '\0');
        CHECK(towpath_answer_header(answer, "key", &value) == TOWPATH_OK && is(value, "value"));
    } else if (answer->error != TOWPATH_OK) {
        CHECK(answer->content == NULL && answer->text[0] != '\0');
    }
    CHECK(towpath_answer_header(answer, "other", &value) == TOWPATH_ERROR_ABSENT);
    pthread_mutex_lock(&linked.lock);
    linked.answers++;
    linked.error = answer->error;
    linked.status = answer->status;
    CHECK(answer->length < sizeof linked.content);
    if (answer->length > 0)
        memcpy(linked.content, answer->content, answer->length);
    linked.content[answer->length] = '\0';
    pthread_cond_signal(&linked.changed);
    pthread_mutex_unlock(&linked.lock);
}

static void hear_push(towpath_push *push, void *user)
{
    towpath_bytes content, value;
    CHECK(user == &linked && towpath_push_wants_answer(push));
    CHECK(towpath_push_class(push, &value) == TOWPATH_OK && is(value, "a.Class"));
    CHECK(towpath_push_header(push, "key", &value) == TOWPATH_OK && is(value, "value"));
    CHECK(towpath_push_header(push, "other", &value) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_push_content(push, &content) == TOWPATH_OK && is(content, "news"));
    CHECK(towpath_push_answer(push, 1, "x", 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_push_answer(push, 65536, NULL, 0) == TOWPATH_ERROR_ARGUMENT);
    pthread_mutex_lock(&linked.lock);
    if (linked.pushes++ == 0)
        CHECK(towpath_push_answer(push, 0, "at once", 7) == TOWPATH_OK);
    else
        linked.kept = push;
    pthread_cond_signal(&linked.changed);
    pthread_mutex_unlock(&linked.lock);
}

static towpath_ask_options ask_for(const char *content)
{
    towpath_ask_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.content = content;
    options.length = strlen(content);
    options.on_answer = hear_answer;
    options.user = &linked;
    options.waits = 1;
    return options;
}

/* Waits until so many have ended; how the last one did. */
static towpath_error ended_ask(int answers)
{
    towpath_error error;
    pthread_mutex_lock(&linked.lock);
    while (linked.answers < answers)
        pthread_cond_wait(&linked.changed, &linked.lock);
    CHECK(linked.answers == answers);
    error = linked.error;
    pthread_mutex_unlock(&linked.lock);
    return error;
}

static void what_cannot_be_asked_is_refused(towpath_engine *engine)
{
    towpath_link_options options;
    towpath_ask_options ask = ask_for("hello");
    towpath_field field = { "key", NULL };
    towpath_link_state state;
    towpath_link *link;
    towpath_bytes bytes;
    uint64_t number;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    CHECK(towpath_link_open(engine, &options, &link) == TOWPATH_ERROR_ARGUMENT && link == NULL);
    options.url = "http://example.org/";
    CHECK(towpath_link_open(engine, &options, &link) == TOWPATH_ERROR_URL);
    CHECK(towpath_link_open(engine, NULL, &link) == TOWPATH_ERROR_ARGUMENT);
    options.size--;
    CHECK(towpath_link_open(engine, &options, &link) == TOWPATH_ERROR_ARGUMENT);

    link = linked.link;
    ask.on_answer = NULL;
    CHECK(towpath_link_ask(link, &ask, &number) == TOWPATH_ERROR_ARGUMENT);
    ask = ask_for("hello");
    ask.reserved = 1;
    CHECK(towpath_link_ask(link, &ask, &number) == TOWPATH_ERROR_ARGUMENT);
    ask = ask_for("hello");
    ask.codec = 256;
    CHECK(towpath_link_ask(link, &ask, &number) == TOWPATH_ERROR_ARGUMENT);
    ask = ask_for("hello");
    ask.headers = &field;
    ask.header_count = 1;
    CHECK(towpath_link_ask(link, &ask, &number) == TOWPATH_ERROR_ARGUMENT);
    ask = ask_for("hello");
    ask.length = 5u << 20;
    ask.content = calloc(1, ask.length);
    CHECK(towpath_link_ask(link, &ask, &number) == TOWPATH_ERROR_ARGUMENT);
    free((void *)ask.content);

    CHECK(towpath_link_ask(NULL, &ask, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_link_tell(NULL, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_link_cancel(NULL, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_link_foreground(NULL, 1) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_link_wait(NULL, 1, 0) == TOWPATH_ERROR_ARGUMENT);
    state.size = 1;
    CHECK(towpath_link_look(link, &state) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_link_free(NULL) == TOWPATH_OK);
    CHECK(towpath_push_answer(NULL, 0, NULL, 0) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_push_content(NULL, &bytes) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_push_wants_answer(NULL) == 0);
    CHECK(towpath_answer_header(NULL, "key", &bytes) == TOWPATH_ERROR_ARGUMENT);
    CHECK(linked.answers == 0);
}

static void both_sides_of_a_link_ask(const char *server)
{
    towpath_engine *engine = new_engine();
    towpath_link_options options;
    towpath_link *other;
    towpath_link_state state;
    towpath_field field = { "key", "value" };
    towpath_ask_options ask;
    uint64_t number;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.url = server;
    options.on_push = hear_push;
    options.user = &linked;
    options.first_pause_ms = 1;
    CHECK(towpath_link_open(engine, &options, &linked.link) == TOWPATH_OK);
    CHECK(towpath_link_wait(linked.link, 1, -1) == TOWPATH_OK);
    CHECK(towpath_link_wait(linked.link, 0, 0) == TOWPATH_ERROR_ABSENT);
    what_cannot_be_asked_is_refused(engine);

    ask = ask_for("hello");
    ask.class_name = "a.Class";
    ask.headers = &field;
    ask.header_count = 1;
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(1) == TOWPATH_OK && linked.status == 0 && strcmp(linked.content, "re hello") == 0);
    ask = ask_for("busy");
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(2) == TOWPATH_OK && linked.status == 4);

    /* What the server asks, and what it is answered. */
    ask = ask_for("push");
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(3) == TOWPATH_OK && strcmp(linked.content, "at once") == 0);
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    pthread_mutex_lock(&linked.lock);
    while (linked.kept == NULL)
        pthread_cond_wait(&linked.changed, &linked.lock);
    pthread_mutex_unlock(&linked.lock);
    CHECK(towpath_push_answer(linked.kept, 0, "later", 5) == TOWPATH_OK);
    CHECK(ended_ask(4) == TOWPATH_OK && strcmp(linked.content, "later") == 0);

    /* What needs no answer, and what gets none. */
    ask = ask_for("told");
    CHECK(towpath_link_tell(linked.link, &ask) == TOWPATH_OK && ended_ask(5) == TOWPATH_OK);
    ask.on_answer = NULL;
    CHECK(towpath_link_tell(linked.link, &ask) == TOWPATH_OK);
    ask = ask_for("silent");
    CHECK(towpath_link_ask(linked.link, &ask, &number) == TOWPATH_OK);
    CHECK(towpath_link_cancel(linked.link, number) == TOWPATH_OK);
    CHECK(linked.answers == 6 && linked.error == TOWPATH_ERROR_CANCELLED);
    CHECK(towpath_link_cancel(linked.link, number) == TOWPATH_ERROR_ABSENT);
    ask.timeout_ms = 1;
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(7) == TOWPATH_ERROR_TOTAL_TIMEOUT);
    ask = ask_for("close");
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(8) == TOWPATH_ERROR_DISCONNECTED);
    ask = ask_for("hello");
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK && ended_ask(9) == TOWPATH_OK);
    CHECK(towpath_link_foreground(linked.link, 1) == TOWPATH_OK);
    state.size = sizeof state;
    CHECK(towpath_link_look(linked.link, &state) == TOWPATH_OK && state.connected == 1);
    CHECK(state.connections == 2 && state.wakeups > 0 && state.interval_ms == 210000);
    CHECK(state.failure == TOWPATH_OK);

    /* Without a network nothing is tried. */
    CHECK(towpath_engine_network(engine, "none", TOWPATH_NETWORK_FIXED, 0) == TOWPATH_OK);
    options.url = "tcp://192.0.2.1:9";
    CHECK(towpath_link_open(engine, &options, &other) == TOWPATH_OK);
    ask.waits = 0;
    CHECK(towpath_link_ask(other, &ask, NULL) == TOWPATH_OK);
    CHECK(ended_ask(10) == TOWPATH_ERROR_NOT_CONNECTED);
    CHECK(towpath_link_wait(other, 0, -1) == TOWPATH_OK && towpath_link_wait(other, 1, 1) == TOWPATH_ERROR_ABSENT);
    CHECK(towpath_link_free(other) == TOWPATH_OK && linked.answers == 10);

    /* A link that is freed ends its requests first, and keeps its engine until then. */
    ask = ask_for("silent");
    CHECK(towpath_link_ask(linked.link, &ask, NULL) == TOWPATH_OK);
    CHECK(towpath_engine_free(engine) == TOWPATH_ERROR_STATE);
    CHECK(towpath_link_free(linked.link) == TOWPATH_OK);
    CHECK(linked.answers == 11 && linked.error == TOWPATH_ERROR_STOPPED);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
}

/* A structure that ends where it ended in an older version, with anything behind it. */
static void programs_of_older_versions_go_on(towpath_engine *engine)
{
    towpath_queue *queue = new_queue();
    towpath_request_options options = options_for("/trailers");
    towpath_request *request;
    towpath_event event;

    options.queue = queue;
    options.size = offsetof(towpath_request_options, hedge);
    options.hedge = 0xdeadbeef;
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
    while ((event = next(queue)).kind != TOWPATH_EVENT_END)
        towpath_chunk_release(event.chunk);
    CHECK(event.error == TOWPATH_OK && towpath_request_status(request) == 200);
    CHECK(towpath_request_free(request) == TOWPATH_OK);
    options.size = offsetof(towpath_request_options, no_resume);
    CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_ERROR_ARGUMENT && request == NULL);
    towpath_queue_free(queue);
}

static void *many_requests(void *engine)
{
    towpath_queue *queue = new_queue();
    int open = 0, started = 0, ended = 0;

    while (ended < 100) {
        towpath_event event;
        for (; open < 4 && started < 100; open++, started++) {
            towpath_request_options options;
            towpath_request *request;
            char own[256];
            snprintf(own, sizeof own, "%s/trailers", origin);
            memset(&options, 0, sizeof options);
            options.size = sizeof options;
            options.url = own;
            options.queue = queue;
            CHECK(towpath_request_start(engine, &options, &request) == TOWPATH_OK);
        }
        event = next(queue);
        towpath_chunk_release(event.chunk);
        if (event.kind == TOWPATH_EVENT_END) {
            CHECK(event.error == TOWPATH_OK);
            CHECK(towpath_request_free(event.request) == TOWPATH_OK);
            open--;
            ended++;
        }
    }
    towpath_queue_free(queue);
    return NULL;
}

static void threads_share_an_engine(towpath_engine *engine)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, many_requests, engine) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* What a socket has told. */
static struct talked {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    towpath_socket *socket;
    int opens, messages, rooms, ends;
    size_t bytes;
    char last[64];
    int is_text;
    uint32_t close_code, status;
    towpath_error error;
} talked = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0, 0, 0, "", 0, 0, 0, 0 };

static void on_socket(const towpath_socket_event *event)
{
    CHECK(event->size == sizeof *event && event->user == &talked);
    CHECK(talked.ends == 0);
    pthread_mutex_lock(&talked.lock);
    switch (event->kind) {
    case TOWPATH_SOCKET_OPEN:
        CHECK(event->length == 4 && memcmp(event->data, "chat", 4) == 0);
        talked.opens++;
        break;
    case TOWPATH_SOCKET_MESSAGE:
        CHECK(talked.opens == 1);
        talked.messages++;
        talked.bytes += event->length;
        talked.is_text = event->is_text != 0;
        if (event->length < sizeof talked.last) {
            memcpy(talked.last, event->data, event->length);
            talked.last[event->length] = '\0';
        }
        break;
    case TOWPATH_SOCKET_ROOM:
        talked.rooms++;
        break;
    default:
        CHECK(event->kind == TOWPATH_SOCKET_END);
        CHECK((event->error == TOWPATH_OK) == (event->text[0] == '\0'));
        talked.ends++;
        talked.error = event->error;
        talked.close_code = event->close_code;
        talked.status = event->status;
    }
    /* With the lock: who waits for the end frees the socket. */
    if (talked.socket != NULL) {
        CHECK(towpath_socket_send(talked.socket, 1, "x", 1, NULL) != TOWPATH_OK);
        CHECK(towpath_socket_free(talked.socket) == TOWPATH_ERROR_STATE);
    }
    pthread_cond_broadcast(&talked.changed);
    pthread_mutex_unlock(&talked.lock);
}

/* Waits until a number is as large. */
static void until(const int *number, int wanted)
{
    pthread_mutex_lock(&talked.lock);
    while (*number < wanted)
        pthread_cond_wait(&talked.changed, &talked.lock);
    pthread_mutex_unlock(&talked.lock);
}

static void a_socket_tells_what_comes_and_one_end(towpath_engine *engine)
{
    towpath_request_options request = options_for("/socket");
    towpath_socket_options options;
    towpath_socket *socket;
    uint32_t sent;
    int taken = 0;
    static char large[100 * 1024];

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    CHECK(towpath_socket_open(engine, &request, &options, &socket) == TOWPATH_ERROR_ARGUMENT && socket == NULL);
    options.on_event = on_socket;
    options.user = &talked;
    options.subprotocols = "other, chat";
    CHECK(towpath_socket_open(engine, NULL, &options, &socket) == TOWPATH_ERROR_ARGUMENT);
    request.method = "POST";
    CHECK(towpath_socket_open(engine, &request, &options, &socket) == TOWPATH_ERROR_ARGUMENT);
    request.method = NULL;
    CHECK(towpath_socket_open(engine, &request, &options, &socket) == TOWPATH_OK && socket != NULL);
    until(&talked.opens, 1);
    talked.socket = socket;
    CHECK(towpath_engine_free(engine) == TOWPATH_ERROR_STATE);
    CHECK(towpath_socket_free(socket) == TOWPATH_ERROR_STATE);
    CHECK(towpath_socket_send(socket, 1, "\xff", 1, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_socket_send(socket, 1, NULL, 1, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_socket_close(socket, 1005, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_socket_close(socket, 70000, NULL) == TOWPATH_ERROR_ARGUMENT);
    CHECK(towpath_socket_send(socket, 1, "hello", 5, &sent) == TOWPATH_OK && sent == 1);
    until(&talked.messages, 1);
    CHECK(strcmp(talked.last, "hello") == 0 && talked.is_text);
    CHECK(towpath_socket_send(socket, 0, "\xff", 1, NULL) == TOWPATH_OK);
    until(&talked.messages, 2);
    CHECK(strcmp(talked.last, "\xff") == 0 && !talked.is_text);
    talked.bytes = 0;
    while (taken < 100) {
        int rooms = talked.rooms;
        CHECK(towpath_socket_send(socket, 0, large, sizeof large, &sent) == TOWPATH_OK);
        if (sent)
            taken++;
        else
            until(&talked.rooms, rooms + 1);
    }
    until(&talked.messages, 102);
    CHECK(talked.bytes == 100 * sizeof large);
    CHECK(towpath_socket_send(socket, 1, "close", 5, NULL) == TOWPATH_OK);
    until(&talked.ends, 1);
    CHECK(talked.error == TOWPATH_OK && talked.close_code == 4001);
    CHECK(towpath_socket_send(socket, 1, "more", 4, &sent) != TOWPATH_OK);
    CHECK(towpath_socket_close(socket, 0, NULL) == TOWPATH_OK);
    talked.socket = NULL;
    CHECK(towpath_socket_free(socket) == TOWPATH_OK);
    CHECK(towpath_socket_free(NULL) == TOWPATH_OK);

    /* A server that does not switch says why. */
    talked.ends = 0;
    request.url = url("/length");
    CHECK(towpath_socket_open(engine, &request, &options, &socket) == TOWPATH_OK);
    until(&talked.ends, 1);
    CHECK(talked.error == TOWPATH_ERROR_WEBSOCKET && talked.status == 200 && talked.close_code == 0);
    CHECK(towpath_socket_free(socket) == TOWPATH_OK);
    CHECK(strcmp(towpath_error_text(TOWPATH_ERROR_WEBSOCKET), "no WebSocket, or no more") == 0);
}

/* What a stream of events has told. */
static struct followed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    towpath_stream *stream;
    int opens, events, breaks, ends, closes;
    char told[256], id[64];
    uint32_t status;
    towpath_error error;
} followed = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0, 0, 0, "", "", 0, 0 };

static void on_stream(const towpath_stream_event *event)
{
    char text[128];

    CHECK(event->size == sizeof *event && event->user == &followed && event->text != NULL);
    pthread_mutex_lock(&followed.lock);
    CHECK(followed.ends == 0);
    snprintf(followed.id, sizeof followed.id, "%.*s", (int)event->id.length, event->id.data);
    switch (event->kind) {
    case TOWPATH_STREAM_OPEN:
        followed.opens++;
        break;
    case TOWPATH_STREAM_EVENT:
        snprintf(text, sizeof text, "%.*s=%.*s;", (int)event->name.length, event->name.data,
            (int)event->data.length, event->data.data);
        strncat(followed.told, text, sizeof followed.told - strlen(followed.told) - 1);
        followed.events++;
        break;
    case TOWPATH_STREAM_BREAK:
        CHECK(event->text[0] != '\0');
        followed.breaks++;
        break;
    default:
        CHECK(event->kind == TOWPATH_STREAM_END);
        CHECK((event->error == TOWPATH_OK) == (event->text[0] == '\0'));
        followed.ends++;
        followed.error = event->error;
        followed.status = event->status;
    }
    if (followed.stream != NULL) {
        CHECK(towpath_stream_free(followed.stream) == TOWPATH_ERROR_STATE);
        if (followed.closes)
            CHECK(towpath_stream_close(followed.stream) == TOWPATH_OK);
    }
    pthread_cond_broadcast(&followed.changed);
    pthread_mutex_unlock(&followed.lock);
}

/* A stream from its beginning to its end; where it closes, at its first event, in the callback. */
static void follow(towpath_engine *engine, const char *path, towpath_stream_options *options, int closes)
{
    towpath_request_options request = options_for(path);

    followed.opens = followed.events = followed.breaks = followed.ends = 0;
    followed.told[0] = '\0';
    followed.closes = closes;
    request.retries = TOWPATH_NONE;
    pthread_mutex_lock(&followed.lock);
    CHECK(towpath_stream_open(engine, &request, options, &followed.stream) == TOWPATH_OK);
    CHECK(towpath_stream_free(followed.stream) == TOWPATH_ERROR_STATE);
    CHECK(towpath_engine_free(engine) == TOWPATH_ERROR_STATE);
    while (followed.ends == 0)
        pthread_cond_wait(&followed.changed, &followed.lock);
    pthread_mutex_unlock(&followed.lock);
    CHECK(towpath_stream_close(followed.stream) == TOWPATH_OK);
    CHECK(towpath_stream_free(followed.stream) == TOWPATH_OK);
    followed.stream = NULL;
}

static void a_stream_of_events_goes_on_behind_the_last_one(towpath_engine *engine)
{
    towpath_request_options request = options_for("/events");
    towpath_stream_options options;
    towpath_stream *stream;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.user = &followed;
    CHECK(towpath_stream_open(engine, &request, &options, &stream) == TOWPATH_ERROR_ARGUMENT && stream == NULL);
    options.on_event = on_stream;
    CHECK(towpath_stream_open(engine, NULL, &options, &stream) == TOWPATH_ERROR_ARGUMENT);
    request.body_follows = 1;
    CHECK(towpath_stream_open(engine, &request, &options, &stream) == TOWPATH_ERROR_ARGUMENT);
    request.body_follows = 0;
    request.url = "ftp://x/";
    CHECK(towpath_stream_open(engine, &request, &options, &stream) == TOWPATH_ERROR_URL && stream == NULL);

    follow(engine, "/events", &options, 0);
    CHECK(followed.error == TOWPATH_OK && followed.opens == 2 && followed.breaks == 2);
    CHECK(strcmp(followed.told, "message=one\nline;own=two;") == 0 && strcmp(followed.id, "2") == 0);

    options.last_event_id = "1";
    follow(engine, "/events", &options, 0);
    CHECK(strcmp(followed.told, "own=two;") == 0);
    options.max_event_bytes = 4;
    follow(engine, "/events", &options, 0);
    CHECK(followed.error == TOWPATH_ERROR_EVENTS && followed.events == 0 && strcmp(followed.id, "1") == 0);
    options.max_event_bytes = 0;
    options.last_event_id = "endless";
    follow(engine, "/events", &options, 1);
    CHECK(followed.error == TOWPATH_ERROR_CANCELLED && followed.opens == 1 && followed.events == 0);
    options.last_event_id = "other";
    follow(engine, "/events", &options, 0);
    CHECK(followed.error == TOWPATH_ERROR_EVENTS && followed.status == 404);
    CHECK(towpath_stream_free(NULL) == TOWPATH_OK);
    CHECK(towpath_stream_close(NULL) == TOWPATH_ERROR_ARGUMENT);
}

int main(int argc, char **argv)
{
    towpath_engine *engine;

    CHECK(argc == 6);
    origin = argv[1];
    engine = new_engine();
    a_response_comes_with_fields_trailers_and_record(engine);
    chunks_that_are_held_keep_the_server_back(engine);
    a_body_goes_up_as_there_is_room(engine, BIG);
    a_body_goes_up_as_there_is_room(engine, TOWPATH_LENGTH_UNKNOWN);
    a_promised_length_is_kept(engine);
    answers_are_followed_and_decoded_where_it_is_asked_for(engine);
    what_is_kept_is_there_in_the_next_life(argv[2]);
    credentials_are_sent_to_servers_that_ask_for_them(engine);
    the_app_is_asked_for_credentials();
    requests_go_through_a_proxy_where_one_is_set();
    whom_to_ask_for_names_is_the_app_s_choice();
    names_are_asked_of_a_server_over_https(argv[4], argv[5]);
    functions_may_cancel_and_free(engine);
    an_engine_that_is_freed_ends_its_requests_first();
    a_queue_that_is_freed_gives_its_requests_up(engine);
    requests_wait_for_one_another(0);
    requests_wait_for_one_another(1);
    what_cannot_be_is_refused(engine);
    threads_share_an_engine(engine);
    names_are_asked_of_the_app();
    an_engine_runs_on_a_thread_that_is_lent();
    an_outbox_sends_what_was_put_in_it(engine, argv[2]);
    both_sides_of_a_link_ask(argv[3]);
    a_socket_tells_what_comes_and_one_end(engine);
    a_stream_of_events_goes_on_behind_the_last_one(engine);
    programs_of_older_versions_go_on(engine);
    without_a_network_nothing_is_tried(engine);
    CHECK(towpath_engine_free(engine) == TOWPATH_OK);
    puts("every promise holds");
    return EXIT_SUCCESS;
}
