/* Load in an open loop: requests are sent at moments of a Poisson process, whether or not
   earlier ones were answered. Latency counts from the moment of the schedule.
   Usage: open_load PORT RATE COUNT GRACE_SECONDS KEY:WEIGHT...
   Prints a line for each request: the index of its key, the second of the schedule, the
   latency in microseconds, and the status; status 0: the connection failed or was lost,
   1: no answer within GRACE_SECONDS after the last moment. */

#define _GNU_SOURCE
#include "timing.h"
#include <arpa/inet.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER 8192
#define MOST_CONNECTIONS 16384
#define MOST_KEYS 8

struct connection {
    int file;
    int is_open;
    long request; /* -1: idle */
    size_t size;
    char *data;
};

struct request {
    double at;
    double latency;
    int status;
    int key;
};

static struct connection connections[MOST_CONNECTIONS];
static int idle[MOST_CONNECTIONS], idle_count, used_count, poll_file;
static int spare[MOST_CONNECTIONS], spare_count;
static struct request *requests;
static long open_requests;
static const char *keys[MOST_KEYS];
static double weights[MOST_KEYS];
static struct sockaddr_in address = {.sin_family = AF_INET};

static void finish(struct connection *it, int status) {
    struct request *request = &requests[it->request];
    request->latency = now() - request->at;
    request->status = status;
    it->request = -1;
    open_requests--;
}

/* Close; an idle connection stays on its stack until it is taken from there. */
static void close_connection(struct connection *it) {
    int was_idle = it->request < 0;
    if (!was_idle)
        finish(it, 0);
    close(it->file);
    it->is_open = 0;
    if (!was_idle)
        spare[spare_count++] = (int)(it - connections);
}

static void send_request(struct connection *it) {
    char text[2048], body[512];
    struct request *request = &requests[it->request];
    int size = snprintf(body, sizeof body,
        "{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"%ld: Please write "
        "a few words about the weather of tomorrow.\"}],\"max_tokens\":16}", it->request);
    size = snprintf(text, sizeof text,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer %s\r\n"
        "Content-Length: %d\r\n\r\n%s", keys[request->key], size, body);
    it->size = 0;
    if (send(it->file, text, (size_t)size, MSG_NOSIGNAL) < size)
        close_connection(it);
}

static void begin(long number) {
    int index, yes = 1;
    struct connection *it;
    open_requests++;
    while (idle_count) {
        it = &connections[index = idle[--idle_count]];
        if (it->is_open) {
            it->request = number;
            send_request(it);
            return;
        }
        spare[spare_count++] = index;
    }
    if (!spare_count && used_count == MOST_CONNECTIONS) {
        open_requests--; /* its status stays 0 */
        return;
    }
    it = &connections[index = spare_count ? spare[--spare_count] : used_count++];
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = it};
    if (!it->data)
        it->data = malloc(BUFFER);
    it->file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    it->is_open = 1;
    it->request = number;
    setsockopt(it->file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connect(it->file, (struct sockaddr *)&address, sizeof address);
    epoll_ctl(poll_file, EPOLL_CTL_ADD, it->file, &event);
}

static int is_whole(const struct connection *it) {
    const char *end = memmem(it->data, it->size, "\r\n\r\n", 4);
    const char *length = strcasestr(it->data, "\r\ncontent-length:");
    if (!end)
        return 0;
    if (length && length < end)
        return (size_t)(end - it->data) + 4 + strtoul(length + 17, NULL, 10) <= it->size;
    return it->size >= 5 && !memcmp(it->data + it->size - 5, "0\r\n\r\n", 5);
}

static void receive(struct connection *it) {
    ssize_t got = recv(it->file, it->data + it->size, BUFFER - 1 - it->size, 0);
    if (got <= 0 || it->request < 0) {
        close_connection(it);
        return;
    }
    it->size += (size_t)got;
    it->data[it->size] = 0;
    if (!is_whole(it))
        return;
    int closes = strcasestr(it->data, "\r\nconnection: close") != NULL;
    finish(it, atoi(it->data + 9));
    idle[idle_count++] = (int)(it - connections);
    if (closes)
        close_connection(it);
}

static void handle(struct epoll_event *event) {
    struct connection *it = event->data.ptr;
    if (!it->is_open)
        return;
    if (event->events & (EPOLLERR | EPOLLHUP) && !(event->events & EPOLLIN)) {
        close_connection(it);
    } else if (event->events & EPOLLOUT) {
        struct epoll_event next = {.events = EPOLLIN, .data.ptr = it};
        epoll_ctl(poll_file, EPOLL_CTL_MOD, it->file, &next);
        send_request(it);
    } else {
        receive(it);
    }
}

static void make_schedule(double start, double rate, long count, int key_count) {
    double total = 0;
    for (int key = 0; key < key_count; key++)
        total += weights[key];
    for (long number = 0; number < count; number++) {
        start -= log(1 - drand48()) / rate;
        double drawn = drand48() * total;
        int key = 0;
        while (key < key_count - 1 && drawn >= weights[key])
            drawn -= weights[key++];
        requests[number] = (struct request){.at = start, .key = key};
    }
}

static void run(long count, double grace) {
    struct epoll_event events[256];
    double end = requests[count - 1].at + grace;
    for (long next = 0; next < count || (open_requests && now() < end);) {
        int ready = wait_until(poll_file, events, 256, next < count ? requests[next].at : end);
        for (int index = 0; index < ready; index++)
            handle(&events[index]);
        while (next < count && requests[next].at <= now())
            begin(next++);
    }
    for (int index = 0; index < used_count; index++)
        if (connections[index].is_open && connections[index].request >= 0)
            finish(&connections[index], 1);
}

int main(int count, char **arguments) {
    int key_count = count - 5;
    if (key_count < 1 || key_count > MOST_KEYS)
        return 2;
    long requested = atol(arguments[3]);
    for (int key = 0; key < key_count; key++) {
        keys[key] = strtok(arguments[5 + key], ":");
        weights[key] = atof(strtok(NULL, ":"));
    }
    address.sin_port = htons((unsigned short)atoi(arguments[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    requests = calloc((size_t)requested, sizeof *requests);
    poll_file = epoll_create1(0);
    double start = now() + 0.01;
    make_schedule(start, atof(arguments[2]), requested, key_count);
    run(requested, atof(arguments[4]));
    for (long number = 0; number < requested; number++) {
        struct request *it = &requests[number];
        printf("%d %.4f %.0f %d\n", it->key, it->at - start, 1e6 * it->latency, it->status);
    }
    return 0;
}
