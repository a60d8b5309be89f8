/* sd_notify without libsystemd: one datagram to $NOTIFY_SOCKET, which is a path or, with a leading '@', a name in the abstract
 * namespace. Source: sd_notify(3). Thread: loop; a datagram to a local socket does not wait. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "workflow/base/log.h"

bool notify_supervisor(const char *message)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (!path || (path[0] != '/' && path[0] != '@') || path[1] == 0)
		return false;
	size_t len = strlen(path);
	if (len >= sizeof address.sun_path) {
		log_warn(LOG_DAEMON, "NOTIFY_SOCKET: a path of %zu bytes is too long", len);
		return false;
	}
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = 0;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* The length counts: an abstract name has no end but this one. */
	ssize_t sent = fd < 0 ? -1 : sendto(fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	if (sent < 0)
		log_warn(LOG_DAEMON, "NOTIFY_SOCKET %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return sent >= 0;
}
