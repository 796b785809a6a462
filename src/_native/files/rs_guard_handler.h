/* The SIGBUS handler of rs_guarded; included by guard.pyx alone. */
#ifndef RS_GUARD_HANDLER_H
#define RS_GUARD_HANDLER_H
#include "rs_guard.h"

#ifdef _WIN32
RS_UNUSED static int rs_guard_install(void) { return 0; }
static int rs_guard_run(rs_guarded_function function, void *argument)
{
    return function(argument);
}
#else
#include <errno.h>
#include <setjmp.h>
#include <signal.h>

/* With glibc the variable is at a fixed distance from the thread pointer, so the handler may read
 * it in a thread without guarded calls. The general model could allocate memory there. */
#if defined(__GLIBC__)
#define RS_THREAD_LOCAL static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define RS_THREAD_LOCAL static _Thread_local
#endif

RS_THREAD_LOCAL sigjmp_buf *volatile rs_guard_place = NULL;
RS_THREAD_LOCAL volatile sig_atomic_t rs_guard_chaining = 0;
static struct sigaction rs_guard_previous;

static void rs_guard_default(int signal_number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
    raise(signal_number);
}

/* Outside guarded calls the previous handler gets the signal, or the process ends. A previous
 * handler that was installed on top of ours may call this one again. Then it had its turn, and the
 * default action follows. */
static void rs_guard_chain(int signal_number, siginfo_t *info, void *context)
{
    const int sent = info->si_code <= 0;
    const int has_function = (rs_guard_previous.sa_flags & SA_SIGINFO)
                             || (rs_guard_previous.sa_handler != SIG_DFL
                                 && rs_guard_previous.sa_handler != SIG_IGN);
    if (!has_function || rs_guard_chaining) {
        if (!(sent && !has_function && rs_guard_previous.sa_handler == SIG_IGN)) {
            rs_guard_default(signal_number);
        }
        return;
    }
    rs_guard_chaining = 1;
    if (rs_guard_previous.sa_flags & SA_SIGINFO) {
        rs_guard_previous.sa_sigaction(signal_number, info, context);
    } else {
        rs_guard_previous.sa_handler(signal_number);
    }
    rs_guard_chaining = 0;
}

static void rs_guard_on_signal(int signal_number, siginfo_t *info, void *context)
{
    const int saved_errno = errno;
    sigjmp_buf *place = rs_guard_place;
    if (place != NULL && info->si_code > 0) { /* not one sent by kill(2) */
        siglongjmp(*place, 1);
    }
    rs_guard_chain(signal_number, info, context);
    errno = saved_errno;
}

/* Return 1 if the handler is installed, -1 with errno. Moves it on top if another replaced it. */
RS_UNUSED static int rs_guard_install(void)
{
    struct sigaction action, current;
    if (sigaction(SIGBUS, NULL, &current) != 0) {
        return -1;
    }
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == rs_guard_on_signal) {
        return 1;
    }
    memset(&action, 0, sizeof action);
    action.sa_sigaction = rs_guard_on_signal;
    /* Not blocked while it runs, since a jump that restores no mask may leave it. */
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    rs_guard_previous = current;
    return sigaction(SIGBUS, &action, NULL) == 0 ? 1 : -1;
}

/* ThreadSanitizer runs handlers with all signals blocked, whatever their flags. */
#ifdef __SANITIZE_THREAD__
#define RS_GUARD_KEEPS_MASK 1
#else
#define RS_GUARD_KEEPS_MASK 0
#endif

static int rs_guard_run(rs_guarded_function function, void *argument)
{
    sigjmp_buf here;
    sigjmp_buf *const volatile outer = rs_guard_place;
    volatile int result = RS_FAULT;
    if (sigsetjmp(here, RS_GUARD_KEEPS_MASK) == 0) {
        rs_guard_place = &here;
        result = function(argument);
    }
    rs_guard_place = outer;
    return result;
}
#endif

RS_UNUSED static PyObject *rs_guard_capsule(void)
{
    rs_guard_caller caller = rs_guard_run;
    void *pointer;
    memcpy(&pointer, &caller, sizeof pointer);
    return PyCapsule_New(pointer, RS_GUARD_CAPSULE, NULL);
}

#endif
