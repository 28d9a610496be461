/* Three seconds after a program starts, its clock is set back by an hour. Loaded before the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

typedef int (*Read)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static Read read;
    static time_t began;
    struct timespec now;

    if (!read)
        read = (Read)dlsym(RTLD_NEXT, "clock_gettime");
    int done = read(clock, at);
    if (done == 0 && clock == CLOCK_REALTIME && read(CLOCK_MONOTONIC, &now) == 0) {
        if (!began)
            began = now.tv_sec;
        if (now.tv_sec >= began + 3)
            at->tv_sec -= 3600;
    }
    return done;
}
