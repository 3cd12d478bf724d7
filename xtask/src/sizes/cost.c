/*
 * cost URL COUNT IDLE_MS: what an engine costs the program that it is in, as one line of numbers:
 *
 *   microseconds to start the engine, and from before that to the first byte of a response; KiB resident (all, and not
 *   of files) before the engine, after the first request, after COUNT; wake-ups in IDLE_MS of idleness.
 *
 * With EMPTY defined it is the program without the library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long status_kib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");

    if (status == NULL)
        return -1;
    while (kib < 0 && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    fclose(status);
    return kib;
}

static void print_memory(void)
{
    printf(" %ld %ld", status_kib("VmRSS:"), status_kib("RssAnon:"));
}

#ifdef EMPTY

int main(void)
{
    print_memory();
    puts("");
    return EXIT_SUCCESS;
}

#else

#include <towpath.h>

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(towpath_error error)
{
    if (error != TOWPATH_OK) {
        fprintf(stderr, "%s: %s\n", towpath_error_text(error), towpath_last_error());
        exit(EXIT_FAILURE);
    }
}

/* When the first byte of the body came. */
static double get(towpath_engine *engine, towpath_queue *queue, const char *url)
{
    towpath_request_options options = { .size = sizeof options, .url = url, .queue = queue };
    towpath_request *request;
    double first_us = 0;

    must(towpath_request_start(engine, &options, &request));
    for (;;) {
        towpath_event event = { .size = sizeof event };
        must(towpath_queue_next(queue, &event, -1));
        if (event.kind == TOWPATH_EVENT_DATA && first_us == 0)
            first_us = now_us();
        towpath_chunk_release(event.chunk);
        if (event.kind == TOWPATH_EVENT_END) {
            must(event.error);
            must(towpath_request_free(request));
            return first_us;
        }
    }
}

int main(int argc, char **argv)
{
    towpath_engine *engine;
    towpath_queue *queue;
    double begin_us, started_us, first_us;
    uint64_t wakeups;
    long idle_ms;

    if (argc != 4)
        return EXIT_FAILURE;
    must(towpath_queue_new(&queue));
    print_memory();
    begin_us = now_us();
    must(towpath_engine_new(NULL, &engine));
    started_us = now_us();
    first_us = get(engine, queue, argv[1]);
    print_memory();
    for (long count = atol(argv[2]); count > 1; count--)
        get(engine, queue, argv[1]);
    print_memory();
    idle_ms = atol(argv[3]);
    /* What the last request left to do is done before. */
    nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    wakeups = towpath_engine_wakeups(engine);
    nanosleep(&(struct timespec){ .tv_sec = idle_ms / 1000, .tv_nsec = idle_ms % 1000 * 1000000 }, NULL);
    wakeups = towpath_engine_wakeups(engine) - wakeups;
    printf(" %.0f %.0f %llu\n", started_us - begin_us, first_us - begin_us, (unsigned long long)wakeups);
    must(towpath_engine_free(engine));
    towpath_queue_free(queue);
    return EXIT_SUCCESS;
}

#endif
