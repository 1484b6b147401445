/* Engine that answers every request at once with one small JSON text, and a question
   for its models with their list.
   Usage: mock_engine PORT
   One thread, epoll, HTTP/1.1 with keep-alive and Content-Length only. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER 65536
#define MOST_FILES 4096
#define EVENTS 256

struct connection {
    char *data;
    size_t size;
};

static struct connection connections[MOST_FILES];
static char answer[1024], models[512];
static size_t answer_size, models_size;

static void make_models(void) {
    const char *body = "{\"object\":\"list\",\"data\":[{\"id\":\"chat\",\"object\":\"model\","
        "\"created\":1790000000,\"owned_by\":\"vllm\",\"max_model_len\":4096}]}";
    models_size = (size_t)snprintf(models, sizeof models,
        "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: application/json\r\n"
        "content-length: %zu\r\n\r\n%s", strlen(body), body);
}

static void make_answer(void) {
    const char *body =
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1790000000,"
        "\"model\":\"chat\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
        "\"content\":\"The answer of a mock engine is always the same.\"},"
        "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":40,"
        "\"completion_tokens\":12,\"total_tokens\":52,"
        "\"prompt_tokens_details\":{\"cached_tokens\":0}}}";
    answer_size = (size_t)snprintf(answer, sizeof answer,
        "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: application/json\r\n"
        "content-length: %zu\r\n\r\n%s", strlen(body), body);
}

/* Return the bytes of the first whole request, 0 if it is not there yet. */
static size_t whole_request(const char *data, size_t size) {
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    const char *length;
    if (!end)
        return 0;
    length = strcasestr(data, "\r\ncontent-length:");
    size_t total = (size_t)(end - data) + 4;
    if (length && length < end)
        total += strtoul(length + 17, NULL, 10);
    return total <= size ? total : 0;
}

static void serve(int file, int poll_file) {
    struct connection *it = &connections[file];
    ssize_t got = recv(file, it->data + it->size, BUFFER - 1 - it->size, 0);
    size_t total;
    if (got <= 0) {
        epoll_ctl(poll_file, EPOLL_CTL_DEL, file, NULL);
        close(file);
        it->size = 0;
        return;
    }
    it->size += (size_t)got;
    it->data[it->size] = 0;
    while ((total = whole_request(it->data, it->size)) > 0) {
        int asks_models = !strncmp(it->data, "GET /v1/models", 14);
        const char *text = asks_models ? models : answer;
        if (send(file, text, asks_models ? models_size : answer_size, MSG_NOSIGNAL) < 0)
            return;
        memmove(it->data, it->data + total, it->size - total);
        it->size -= total;
        it->data[it->size] = 0;
    }
}

int main(int count, char **arguments) {
    int yes = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
    int poll_file = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    if (count != 2)
        return 2;
    make_answer();
    make_models();
    address.sin_port = htons((unsigned short)atoi(arguments[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 1024))
        return 1;
    event.data.fd = listening;
    epoll_ctl(poll_file, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int ready = epoll_wait(poll_file, events, EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            int file = events[index].data.fd;
            if (file != listening) {
                serve(file, poll_file);
                continue;
            }
            file = accept(listening, NULL, NULL);
            if (file < 0 || file >= MOST_FILES)
                continue;
            setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            if (!connections[file].data)
                connections[file].data = malloc(BUFFER);
            event.data.fd = file;
            epoll_ctl(poll_file, EPOLL_CTL_ADD, file, &event);
        }
    }
}
