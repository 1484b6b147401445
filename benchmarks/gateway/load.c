/* Load in a closed loop: each connection sends its next request after an answer.
   Usage: load PORT CONNECTIONS SECONDS KEY
   Prints one line: requests, failures, seconds, p50 and p99 in microseconds.
   The prompts have 64 different lengths, so that heads differ in Content-Length. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER 65536
#define MOST_CONNECTIONS 1024
#define LENGTHS 64
#define MOST_SAMPLES 4000000

struct connection {
    int file;
    int next;
    double sent_at;
    size_t size;
    char data[BUFFER];
};

static struct connection *connections;
static char requests[LENGTHS][2048];
static size_t request_sizes[LENGTHS];
static float *samples;
static long answers, failures;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void make_requests(int port, const char *key) {
    for (int index = 0; index < LENGTHS; index++) {
        char body[1024];
        int size = snprintf(body, sizeof body,
            "{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"Please write %.*s\"}],"
            "\"max_tokens\":16,\"temperature\":0.7}", index + 1,
            "a few words about the weather of tomorrow, and about how it was today.");
        request_sizes[index] = (size_t)snprintf(requests[index], sizeof requests[index],
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            "Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\n"
            "Connection: keep-alive\r\nContent-Type: application/json\r\n"
            "User-Agent: OpenAI/Python 3.54.0\r\nAuthorization: Bearer %s\r\n"
            "Content-Length: %d\r\n\r\n%s", port, key, size, body);
    }
}

static void send_next(struct connection *it) {
    int index = it->next++ % LENGTHS;
    it->sent_at = now();
    it->size = 0;
    if (send(it->file, requests[index], request_sizes[index], MSG_NOSIGNAL) < 0)
        failures++;
}

/* Read a part of an answer; return 0 when the connection has ended. */
static int receive(struct connection *it) {
    ssize_t got = recv(it->file, it->data + it->size, BUFFER - 1 - it->size, 0);
    char *end, *length;
    if (got <= 0) {
        failures++;
        return 0;
    }
    it->size += (size_t)got;
    it->data[it->size] = 0;
    end = memmem(it->data, it->size, "\r\n\r\n", 4);
    length = strcasestr(it->data, "\r\ncontent-length:");
    if (!end || !length)
        return 1;
    if ((size_t)(end - it->data) + 4 + strtoul(length + 17, NULL, 10) > it->size)
        return 1;
    if (strncmp(it->data, "HTTP/1.1 200", 12))
        failures++;
    if (answers < MOST_SAMPLES)
        samples[answers] = (float)(now() - it->sent_at);
    answers++;
    send_next(it);
    return 1;
}

static int compare(const void *first, const void *second) {
    float left = *(const float *)first, right = *(const float *)second;
    return (left > right) - (left < right);
}

int main(int count, char **arguments) {
    int yes = 1, poll_file = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[256], event = {.events = EPOLLIN};
    if (count != 5)
        return 2;
    int port = atoi(arguments[1]), wanted = atoi(arguments[2]);
    double seconds = atof(arguments[3]);
    if (wanted > MOST_CONNECTIONS)
        return 2;
    connections = calloc((size_t)wanted, sizeof *connections);
    samples = malloc(MOST_SAMPLES * sizeof *samples);
    make_requests(port, arguments[4]);
    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    double start = now();
    for (int index = 0; index < wanted; index++) {
        struct connection *it = &connections[index];
        it->file = socket(AF_INET, SOCK_STREAM, 0);
        it->next = index;
        if (connect(it->file, (struct sockaddr *)&address, sizeof address))
            return 1;
        setsockopt(it->file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        event.data.ptr = it;
        epoll_ctl(poll_file, EPOLL_CTL_ADD, it->file, &event);
        send_next(it);
    }
    while (now() - start < seconds) {
        int ready = epoll_wait(poll_file, events, 256, 100);
        for (int index = 0; index < ready; index++) {
            struct connection *it = events[index].data.ptr;
            if (!receive(it))
                epoll_ctl(poll_file, EPOLL_CTL_DEL, it->file, NULL);
        }
    }
    long kept = answers < MOST_SAMPLES ? answers : MOST_SAMPLES;
    qsort(samples, (size_t)kept, sizeof *samples, compare);
    printf("%ld %ld %.3f %.0f %.0f\n", answers, failures, now() - start,
           kept ? 1e6 * samples[kept / 2] : 0, kept ? 1e6 * samples[kept * 99 / 100] : 0);
    return 0;
}
