/* Stands before the process's own `process_vm_writev`, and counts its calls; on demand one of them goes wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WELL, REFUSED, KILLED, STOPPED, SLOW };
/* How long each takes from the slow one on. */
enum { SLOW_US = 20000 };
static atomic_int made, fault, fault_at;

int writes_made(void)
{
    return atomic_load(&made);
}

void writes_go_wrong(int how, int calls_from_now)
{
    atomic_store(&fault_at, atomic_load(&made) + calls_from_now);
    atomic_store(&fault, how);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long count, const struct iovec *there, unsigned long counts, unsigned long flags)
{
    int how = atomic_fetch_add(&made, 1) + 1 == atomic_load(&fault_at) ? atomic_load(&fault) : WELL;
    if (how == REFUSED) {
        errno = EPERM;
        return -1;
    }
    if (how == KILLED)
        kill(getpid(), SIGKILL);
    if (how == STOPPED)
        kill(getpid(), SIGSTOP);
    if (atomic_load(&fault) == SLOW)
        usleep(SLOW_US);
    return syscall(SYS_process_vm_writev, pid, here, count, there, counts, flags);
}
