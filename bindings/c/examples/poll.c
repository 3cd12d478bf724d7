/*
 * poll URL FILE…: uploads every file to the URL by PUT, all at once, from one thread with a loop of its own.
 *
 *   cc -I bindings/c bindings/c/examples/poll.c -L target/small -ltowpath_c -o poll
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <towpath.h>

/* A file on its way. */
struct upload {
    const char *path;
    FILE *file;
    char piece[16384];
    size_t begin, end; /* of the piece, what is not sent yet */
};

/* Sends as much as there is room for; a ROOM event calls for more. */
static towpath_error pump(towpath_request *request, struct upload *upload)
{
    for (;;) {
        size_t taken;
        towpath_error error;

        if (upload->begin == upload->end) {
            upload->begin = 0;
            upload->end = fread(upload->piece, 1, sizeof upload->piece, upload->file);
            if (upload->end == 0)
                return ferror(upload->file) ? towpath_request_cancel(request) : towpath_request_finish(request);
        }
        error = towpath_request_write(request, upload->piece + upload->begin, upload->end - upload->begin, &taken);
        if (error != TOWPATH_OK || taken == 0)
            return error;
        upload->begin += taken;
    }
}

/* 1 when the upload is over, and -1 when that is because it failed. */
static int on_event(const towpath_event *event)
{
    struct upload *upload = event->user;
    uint32_t status;

    switch (event->kind) {
    case TOWPATH_EVENT_ROOM:
        /* Where this fails the request has ended, and its END says why. */
        pump(event->request, upload);
        return 0;
    case TOWPATH_EVENT_DATA:
        towpath_chunk_release(event->chunk);
        return 0;
    case TOWPATH_EVENT_END:
        status = towpath_request_status(event->request);
        printf("%s: status %u %s\n", upload->path, status, event->text);
        towpath_request_free(event->request);
        fclose(upload->file);
        free(upload);
        return event->error == TOWPATH_OK && status < 300 ? 1 : -1;
    default:
        return 0;
    }
}

static int start(towpath_engine *engine, towpath_queue *queue, const char *url, const char *path)
{
    struct upload *upload = calloc(1, sizeof *upload);
    towpath_request_options options = {
        .size = sizeof options,
        .url = url,
        .method = "PUT",
        .body_follows = 1,
        .content_length = TOWPATH_LENGTH_UNKNOWN,
        .queue = queue,
        .user = upload,
    };
    towpath_request *request;

    if (upload == NULL || (upload->file = fopen(path, "rb")) == NULL) {
        perror(path);
        free(upload);
        return 0;
    }
    upload->path = path;
    if (towpath_request_start(engine, &options, &request) != TOWPATH_OK) {
        fprintf(stderr, "%s: %s\n", path, towpath_last_error());
        fclose(upload->file);
        free(upload);
        return 0;
    }
    pump(request, upload);
    return 1;
}

int main(int argc, char **argv)
{
    towpath_engine *engine;
    towpath_queue *queue;
    int open = 0, failed = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: %s URL FILE...\n", argv[0]);
        return EXIT_FAILURE;
    }
    if (towpath_engine_new(NULL, &engine) != TOWPATH_OK || towpath_queue_new(&queue) != TOWPATH_OK) {
        fprintf(stderr, "%s\n", towpath_last_error());
        return EXIT_FAILURE;
    }
    for (int i = 2; i < argc; i++) {
        int started = start(engine, queue, argv[1], argv[i]);
        open += started;
        failed += !started;
    }
    while (open > 0) {
        /* The loop of a real program would watch its own descriptors here as well. */
        struct pollfd watched = { .fd = towpath_queue_fd(queue), .events = POLLIN };
        towpath_event event = { .size = sizeof event };

        poll(&watched, 1, -1);
        while (towpath_queue_next(queue, &event, 0) == TOWPATH_OK && event.kind != TOWPATH_EVENT_NONE) {
            int over = on_event(&event);
            open -= over != 0;
            failed += over < 0;
        }
    }
    towpath_queue_free(queue);
    towpath_engine_free(engine);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
