/* What GCC 12's static C++ library and the engines want of glibc and an older glibc lacks, or has
 * under an older version.
 *
 * The engines are compiled by Debian 12's GCC against Debian 11's glibc (2.31) and run with 2.28.
 * These definitions are linked into each executable and library of the package, hidden, so that no
 * program that loads one of them sees them. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* 2.36: std::random_device. */
HIDDEN unsigned arc4random(void) {
    unsigned value;
    while (getrandom(&value, sizeof value, 0) != sizeof value) {
    }
    return value;
}

/* 2.32: std::shared_ptr counts without atomic operations while it is set. */
HIDDEN char __libc_single_threaded = 0;

/* 2.30 */
HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.29: these no longer set errno as SVID wants. Nothing here reads it. */
#define OLD_OF_1(name)                                      \
    __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5"); \
    double old_##name(double);                              \
    HIDDEN double name(double x) { return old_##name(x); }
#define OLD_OF_2(name)                                      \
    __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5"); \
    double old_##name(double, double);                      \
    HIDDEN double name(double x, double y) { return old_##name(x, y); }
OLD_OF_1(exp)
OLD_OF_1(exp2)
OLD_OF_1(log)
OLD_OF_1(log2)
OLD_OF_2(pow)

/* 2.30: waits by the steady clock. The time that is left is waited for by the clock of the
 * condition, as GCC 9 did; callers look at their own clock afterwards. */
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const struct timespec* until) {
    const long second = 1000000000;
    struct timespec now, here;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &here);
    here.tv_sec += until->tv_sec - now.tv_sec;
    here.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (here.tv_nsec < 0) here.tv_sec -= 1, here.tv_nsec += second;
    if (here.tv_nsec >= second) here.tv_sec += 1, here.tv_nsec -= second;
    return pthread_cond_timedwait(condition, mutex, &here);
}
