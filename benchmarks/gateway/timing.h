/* Clock of the programs for faults: moments of one clock, equal in all processes. */

#ifndef TIMING_H
#define TIMING_H

#include <sys/epoll.h>
#include <time.h>

static inline long long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline double now(void) {
    return 1e-9 * (double)nanoseconds();
}

/* Wait for events until a moment, with more precision than milliseconds. */
static inline int wait_until(int poll_file, struct epoll_event *events, int most, double moment) {
    double left = moment - now();
    if (left < 0)
        left = 0;
    struct timespec time = {.tv_sec = (time_t)left};
    time.tv_nsec = (long)(1e9 * (left - (double)time.tv_sec));
    return epoll_pwait2(poll_file, events, most, &time, NULL);
}

#endif
