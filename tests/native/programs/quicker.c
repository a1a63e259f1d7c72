/* Preloaded: whoever makes a file with O_EXCL finds that another was quicker. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int openat(int directory, const char *name, int flags, ...)
{
	if (flags & O_EXCL) {
		int file = syscall(SYS_openat, directory, name, O_CREAT | O_WRONLY, 0600);

		if (write(file, "theirs", 6) != 6 || close(file))
			return -1;
	}
	return syscall(SYS_openat, directory, name, flags, 0600);
}
