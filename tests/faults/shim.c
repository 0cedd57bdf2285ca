// Lets the n-th call of one kind fail, once it is armed: for LD_PRELOAD, see inject.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kNone, kWrite, kFsync, kRead, kThread, kMalloc, kShortWrite, kShortRead };
static volatile int armed = kNone;
static volatile long left = 0;
static const size_t kLarge = 512;

void fault_arm(int kind, long n) {
  left = n;
  armed = kind;
}
// Whether the fault has happened.
int fault_disarm(void) {
  armed = kNone;
  return left <= 0;
}
static int fails(int kind) { return armed == kind && __sync_sub_and_fetch(&left, 1) == 0; }

ssize_t write(int fd, const void* from, size_t n) {
  static ssize_t (*real)(int, const void*, size_t);
  if (!real) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  if (fd > 2 && fails(kWrite)) {
    errno = ENOSPC;
    return -1;
  }
  return real(fd, from, fd > 2 && n > 1 && fails(kShortWrite) ? n / 2 : n);
}
ssize_t read(int fd, void* to, size_t n) {
  static ssize_t (*real)(int, void*, size_t);
  if (!real) real = (ssize_t(*)(int, void*, size_t))dlsym(RTLD_NEXT, "read");
  if (fd > 2 && fails(kRead)) {
    errno = EIO;
    return -1;
  }
  return real(fd, to, fd > 2 && n > 1 && fails(kShortRead) ? n / 2 : n);
}
int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  if (fails(kFsync)) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}
int fdatasync(int fd) { return fsync(fd); }
int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*start)(void*), void* arg) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real) real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  return fails(kThread) ? EAGAIN : real(thread, attr, start, arg);
}
// Only those of the package's own native code, and of the C++ library for it: NumPy does not survive its own.
static int is_ours(void* caller) {
  Dl_info info;
  if (!dladdr(caller, &info) || !info.dli_fname) return 0;
  return strstr(info.dli_fname, "_native") != NULL || strstr(info.dli_fname, "libstdc++") != NULL;
}
extern void* __libc_malloc(size_t);
void* malloc(size_t n) {
  if (armed == kMalloc && n >= kLarge && is_ours(__builtin_return_address(0)) && fails(kMalloc)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(n);
}
