/*
 * get URL: makes one request and writes the response's body to the standard output; what happened goes to the standard
 * error.
 *
 *   cc -I bindings/c bindings/c/examples/get.c -L target/small -ltowpath_c -o get
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <towpath.h>

/* What the engine's thread tells the thread that waits. */
struct outcome {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ended;
    towpath_error error;
};

/* Called on the engine's thread. */
static void on_event(const towpath_event *event)
{
    struct outcome *outcome = event->user;

    switch (event->kind) {
    case TOWPATH_EVENT_HEAD: {
        towpath_bytes type = { "", 0 };
        towpath_request_header(event->request, "content-type", &type);
        fprintf(stderr, "status %u, type '%.*s'\n", towpath_request_status(event->request), (int)type.length, type.data);
        break;
    }
    case TOWPATH_EVENT_DATA:
        /* The engine's own memory. It could be kept; as soon as it is released, more may come. */
        fwrite(event->data, 1, event->length, stdout);
        towpath_chunk_release(event->chunk);
        break;
    case TOWPATH_EVENT_END:
        if (event->error != TOWPATH_OK)
            fprintf(stderr, "failed: %s\n", event->text);
        pthread_mutex_lock(&outcome->lock);
        outcome->ended = 1;
        outcome->error = event->error;
        pthread_cond_signal(&outcome->changed);
        pthread_mutex_unlock(&outcome->lock);
        break;
    default: /* a newer library may tell more */
        break;
    }
}

static int check(towpath_error error)
{
    if (error != TOWPATH_OK)
        fprintf(stderr, "%s: %s\n", towpath_error_text(error), towpath_last_error());
    return error == TOWPATH_OK;
}

static int get(towpath_engine *engine, const char *url)
{
    struct outcome outcome = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, TOWPATH_OK };
    towpath_field fields[] = { { "user-agent", "get.c" } };
    towpath_request_options options = {
        .size = sizeof options,
        .url = url,
        .fields = fields,
        .field_count = sizeof fields / sizeof *fields,
        .timeout_ms = 30000,
        .on_event = on_event,
        .user = &outcome,
    };
    towpath_request *request;
    towpath_bytes record;

    if (!check(towpath_request_start(engine, &options, &request)))
        return 0;

    pthread_mutex_lock(&outcome.lock);
    while (!outcome.ended)
        pthread_cond_wait(&outcome.changed, &outcome.lock);
    pthread_mutex_unlock(&outcome.lock);

    if (towpath_request_record(request, &record) == TOWPATH_OK)
        fprintf(stderr, "record: %s\n", record.data);
    return check(towpath_request_free(request)) && outcome.error == TOWPATH_OK;
}

int main(int argc, char **argv)
{
    towpath_engine *engine;
    int done;

    if (argc != 2) {
        fprintf(stderr, "usage: %s URL\n", argv[0]);
        return EXIT_FAILURE;
    }
    /* A library that was built for another major version would misunderstand us. */
    if (towpath_abi_version() >> 16 != TOWPATH_ABI_MAJOR) {
        fprintf(stderr, "this library is of another version\n");
        return EXIT_FAILURE;
    }
    if (!check(towpath_engine_new(NULL, &engine)))
        return EXIT_FAILURE;
    done = get(engine, argv[1]);
    towpath_engine_free(engine);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
