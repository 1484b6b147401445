/* Streams whose chunks carry the moment of their sending.
   Usage: stream_load PORT STREAMS TOKENS KEY
   Prints one line: chunks, chunks that were expected, then p50 and p99 of their age in
   microseconds. */

#define _GNU_SOURCE
#include "timing.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER 65536
#define MOST_STREAMS 1024
#define DIGITS 19
#define STAGGER_SECONDS 0.000317

struct stream {
    int file;
    long chunks;
    size_t size;
    char *data;
};

static struct stream streams[MOST_STREAMS];
static float *ages;
static long age_count, expected_count;

/* Count the chunks in what was received; keep a part that is not whole. */
static void read_chunks(struct stream *it) {
    static const char mark[] = "\"content\":\"";
    long long moment = nanoseconds();
    char *from = it->data, *end = it->data + it->size, *at;
    while ((at = memmem(from, (size_t)(end - from), mark, sizeof mark - 1))) {
        char *digits = at + sizeof mark - 1;
        if (end - digits < DIGITS + 1) {
            from = at;
            break;
        }
        if (age_count < expected_count)
            ages[age_count++] = (float)(moment - atoll(digits));
        it->chunks++;
        from = digits + DIGITS;
    }
    if (!at && end - from > (long)sizeof mark)
        from = end - sizeof mark;
    it->size = (size_t)(end - from);
    memmove(it->data, from, it->size);
}

static int open_stream(struct stream *it, int port, long tokens, const char *key) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    char body[512], text[1024];
    int yes = 1;
    int size = snprintf(body, sizeof body,
        "{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"Go on\"}],"
        "\"max_tokens\":%ld,\"stream\":true}", tokens);
    size = snprintf(text, sizeof text,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer %s\r\n"
        "Content-Length: %d\r\n\r\n%s", key, size, body);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    it->data = malloc(BUFFER);
    it->file = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(it->file, (struct sockaddr *)&address, sizeof address))
        return 1;
    setsockopt(it->file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return send(it->file, text, (size_t)size, MSG_NOSIGNAL) < size;
}

static int compare(const void *first, const void *second) {
    float left = *(const float *)first, right = *(const float *)second;
    return (left > right) - (left < right);
}

static void receive(struct stream *it, int poll_file) {
    ssize_t got = recv(it->file, it->data + it->size, BUFFER - it->size, 0);
    if (got <= 0) {
        epoll_ctl(poll_file, EPOLL_CTL_DEL, it->file, NULL);
        return;
    }
    it->size += (size_t)got;
    read_chunks(it);
}

int main(int count, char **arguments) {
    int poll_file = epoll_create1(0);
    struct epoll_event events[256];
    if (count != 5)
        return 2;
    int port = atoi(arguments[1]), wanted = atoi(arguments[2]), opened = 0;
    long tokens = atol(arguments[3]);
    if (wanted > MOST_STREAMS)
        return 2;
    expected_count = wanted * tokens;
    ages = malloc((size_t)expected_count * sizeof *ages);
    double start = now(), end = start + 0.02 * (double)tokens + 5;
    while (age_count < expected_count && now() < end) {
        double next = start + STAGGER_SECONDS * opened;
        int ready = wait_until(poll_file, events, 256, opened < wanted ? next : now() + 0.1);
        for (int index = 0; index < ready; index++)
            receive(events[index].data.ptr, poll_file);
        if (opened < wanted && now() >= next) {
            struct stream *it = &streams[opened++];
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
            if (open_stream(it, port, tokens, arguments[4]))
                return 1;
            epoll_ctl(poll_file, EPOLL_CTL_ADD, it->file, &event);
        }
    }
    qsort(ages, (size_t)age_count, sizeof *ages, compare);
    printf("%ld %ld %.0f %.0f\n", age_count, expected_count,
           age_count ? 1e-3 * ages[age_count / 2] : 0,
           age_count ? 1e-3 * ages[age_count * 99 / 100] : 0);
    return 0;
}
