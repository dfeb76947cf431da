// libseccomp-dev: seccomp
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(EXDEV), SCMP_SYS(getppid), 0);
    printf("%s %d\n", seccomp_syscall_resolve_num_arch(SCMP_ARCH_AARCH64, 64), seccomp_syscall_resolve_name("getppid"));
    fflush(stdout);
    seccomp_export_pfc(filter, STDOUT_FILENO);
    if (fork() == 0) _exit(seccomp_load(filter) ? 99 : getppid() == -1 && errno == EXDEV ? 7 : 8);
    int status;
    wait(&status);
    printf("%d\n", WEXITSTATUS(status));
    return 0;
}
