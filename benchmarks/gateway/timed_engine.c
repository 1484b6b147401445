/* Engine whose answers take time: a part of them fails, and streams carry timestamps.
   Usage: timed_engine PORT MILLISECONDS SLOTS ERROR_PERCENT
   At most SLOTS requests are computed at once, each for MILLISECONDS; the others wait in
   order. A stream sends a chunk each 20 ms, with the moment of sending as its text. */

#define _GNU_SOURCE
#include "timing.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER 16384
#define MOST_FILES 16384
#define MOST_EVENTS 65536
#define CHUNK_SECONDS 0.02

struct connection {
    char *data;
    size_t size;
    unsigned number;
    long tokens;
};

struct timed {
    double at;
    int file;
    unsigned number;
    int is_chunk;
};

static struct connection connections[MOST_FILES];
static struct timed heap[MOST_EVENTS], waiting[MOST_EVENTS];
static size_t heap_size, first_waiting, last_waiting;
static double seconds, error_share;
static long slots, computing;

static void push(struct timed one) {
    size_t index = heap_size++;
    while (index && heap[(index - 1) / 2].at > one.at) {
        heap[index] = heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    heap[index] = one;
}

static struct timed pop(void) {
    struct timed first = heap[0], last = heap[--heap_size];
    size_t index = 0, child;
    while ((child = 2 * index + 1) < heap_size) {
        if (child + 1 < heap_size && heap[child + 1].at < heap[child].at)
            child++;
        if (last.at <= heap[child].at)
            break;
        heap[index] = heap[child];
        index = child;
    }
    heap[index] = last;
    return first;
}

static void send_text(int file, const char *text, int size) {
    if (send(file, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        shutdown(file, SHUT_RDWR);
}

static void send_answer(int file, const char *status, const char *body) {
    char text[1024];
    send_text(file, text, snprintf(text, sizeof text,
        "HTTP/1.1 %s\r\nserver: mock\r\ncontent-type: application/json\r\n"
        "content-length: %zu\r\n\r\n%s", status, strlen(body), body));
}

static void send_completion(int file) {
    if (drand48() < error_share)
        send_answer(file, "500 Internal Server Error", "{\"error\":{\"message\":\"fault\"}}");
    else
        send_answer(file, "200 OK",
            "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1790000000,"
            "\"model\":\"chat\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
            "\"content\":\"The answer of a mock engine is always the same.\"},"
            "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":40,"
            "\"completion_tokens\":12,\"total_tokens\":52}}");
}

/* Send the next chunk of a stream; return 0 after the last one. */
static int send_chunk(int file) {
    struct connection *it = &connections[file];
    char event[512], text[640];
    int is_last = --it->tokens <= 0;
    int size = snprintf(event, sizeof event,
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
        "\"created\":1790000000,\"model\":\"chat\",\"choices\":[{\"index\":0,"
        "\"delta\":{\"content\":\"%019lld \"},\"finish_reason\":%s}]}\n\n%s",
        nanoseconds(), is_last ? "\"stop\"" : "null", is_last ? "data: [DONE]\n\n" : "");
    send_text(file, text, snprintf(text, sizeof text, "%x\r\n%s\r\n%s", (unsigned)size, event,
        is_last ? "0\r\n\r\n" : ""));
    return !is_last;
}

static void begin_computing(int file, unsigned number) {
    push((struct timed){now() + seconds, file, number, 0});
    computing++;
}

static void run_due(void) {
    while (heap_size && heap[0].at <= now()) {
        struct timed one = pop();
        int is_current = connections[one.file].number == one.number;
        if (one.is_chunk) {
            one.at += CHUNK_SECONDS;
            if (is_current && send_chunk(one.file))
                push(one);
            continue;
        }
        if (is_current)
            send_completion(one.file);
        computing--;
        while (first_waiting != last_waiting && computing < slots) {
            struct timed next = waiting[first_waiting++ % MOST_EVENTS];
            if (connections[next.file].number == next.number)
                begin_computing(next.file, next.number);
        }
    }
}

/* Return the bytes of the first whole request, 0 if it is not there yet. */
static size_t whole_request(const char *data, size_t size) {
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    const char *length = strcasestr(data, "\r\ncontent-length:");
    if (!end)
        return 0;
    size_t total = (size_t)(end - data) + 4;
    if (length && length < end)
        total += strtoul(length + 17, NULL, 10);
    return total <= size ? total : 0;
}

static void begin(int file) {
    struct connection *it = &connections[file];
    const char *tokens = strstr(it->data, "\"max_tokens\":");
    const char *head = "HTTP/1.1 200 OK\r\nserver: mock\r\nx-accel-buffering: no\r\n"
        "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    if (!strncmp(it->data, "GET ", 4)) {
        send_answer(file, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"chat\","
            "\"object\":\"model\",\"created\":1790000000,\"owned_by\":\"vllm\"}]}");
    } else if (strstr(it->data, "\"stream\":true")) {
        it->tokens = tokens ? atol(tokens + 13) : 16;
        send_text(file, head, (int)strlen(head));
        push((struct timed){now() + CHUNK_SECONDS, file, it->number, 1});
    } else if (computing < slots) {
        begin_computing(file, it->number);
    } else {
        waiting[last_waiting++ % MOST_EVENTS] = (struct timed){0, file, it->number, 0};
    }
}

static void serve(int file, int poll_file) {
    struct connection *it = &connections[file];
    ssize_t got = recv(file, it->data + it->size, BUFFER - 1 - it->size, 0);
    size_t total;
    if (got <= 0) {
        epoll_ctl(poll_file, EPOLL_CTL_DEL, file, NULL);
        close(file);
        it->size = 0;
        it->number++;
        return;
    }
    it->size += (size_t)got;
    it->data[it->size] = 0;
    while ((total = whole_request(it->data, it->size)) > 0) {
        begin(file);
        memmove(it->data, it->data + total, it->size - total);
        it->size -= total;
        it->data[it->size] = 0;
    }
}

static void accept_one(int listening, int poll_file) {
    int yes = 1, file = accept(listening, NULL, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    if (file < 0)
        return;
    if (file >= MOST_FILES) {
        close(file);
        return;
    }
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!connections[file].data)
        connections[file].data = malloc(BUFFER);
    epoll_ctl(poll_file, EPOLL_CTL_ADD, file, &event);
}

int main(int count, char **arguments) {
    int yes = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
    int poll_file = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[256], event = {.events = EPOLLIN};
    if (count != 5)
        return 2;
    seconds = 1e-3 * atof(arguments[2]);
    slots = atol(arguments[3]);
    error_share = 0.01 * atof(arguments[4]);
    address.sin_port = htons((unsigned short)atoi(arguments[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 4096))
        return 1;
    event.data.fd = listening;
    epoll_ctl(poll_file, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        double moment = heap_size ? heap[0].at : now() + 1;
        int ready = wait_until(poll_file, events, 256, moment);
        for (int index = 0; index < ready; index++) {
            int file = events[index].data.fd;
            if (file == listening)
                accept_one(listening, poll_file);
            else
                serve(file, poll_file);
        }
        run_due();
    }
}
