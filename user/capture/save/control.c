/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/control.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

#define FOLDER "/run/memtrace-bpf"
#define FEEDS "-figures"    /* end of the name of the folder with the feeds */
#define CLIENTS 64	    /* connected clients at most */
#define CLIENTS_OF_A_USER 8 /* of them, of one user */
#define ACL_USERS 32	    /* users in the socket's access control list at most */
#define REFUSED_AT_ONCE 16  /* programs that may not read a feed, of one control__feed() */
/* Requests per control__pump() at most: a client that never stops must not hold up the capture. */
#define REQUESTS 16
#define ANSWER_TIMEOUT 10 /* seconds until a client gives up */
#define PLACES 1024	  /* captures that control__find() lists at most */

struct control {
	char path[108];	      /* path of the socket */
	int listening, epoll; /* descriptors; -1: none */
	struct client {
		int fd;		     /* socket; -1: unused */
		unsigned long since; /* number of the connection */
		uid_t uid;
		uint64_t at; /* number of the last message that a reader of a feed got */
	} clients[CLIENTS];
	unsigned long connected; /* clients so far */
	control_handler *handler;
	void *ctx;
	const struct control_feed *feed; /* NULL: the clients send requests */
	size_t users;			 /* number of the feed's users that may open the socket */
};

/* Returns the folder's path, for users other than root in their runtime directory; NULL: they have
 * none. end: end of its name. */
static const char *folder_path(const char *folder, const char *end, char buf[80])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (folder)
		return folder;
	if (!geteuid()) {
		snprintf(buf, 80, FOLDER "%s", end);
		return buf;
	}
	if (!runtime || *runtime != '/' || strlen(runtime) > 50)
		return NULL;
	snprintf(buf, 80, "%s/memtrace-bpf%s", runtime, end);
	return buf;
}

/* Makes the folder. It must be ours alone, so that no other user can add a socket in it. Others may
 * open sockets if listed is true. 0 or -errno. */
static int make_folder(const char *path, bool listed)
{
	mode_t others = listed ? 022 : 077;
	struct stat st;

	if (!mkdir(path, 0700)) {
		/* whatever the umask is */
		if (listed && chmod(path, 0755))
			return -errno;
	} else if (errno != EEXIST) {
		return -errno;
	}
	if (lstat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & others) ? 0 : -EPERM;
}

static int set_address(struct sockaddr_un *sa, const char *path)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(sa->sun_path))
		return -ENAMETOOLONG;
	strcpy(sa->sun_path, path);
	return 0;
}

/* Adds a descriptor to epoll. which: index of the client; CLIENTS: the listening socket. */
static void watch(struct control *control, int fd, uint32_t which)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = which };

	epoll_ctl(control->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Makes the socket, under its name once it listens. 0 or -errno. */
static int listen_at(struct control *control)
{
	struct sockaddr_un address;
	char early[sizeof(control->path) + 4];
	int err;

	/* The socket gets its name only when it listens: clients remove a socket that refuses them.
	 */
	snprintf(early, sizeof(early), "%s.new", control->path);
	err = set_address(&address, early);
	control->epoll = epoll_create1(EPOLL_CLOEXEC);
	control->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (err)
		return err;
	if (control->epoll < 0 || control->listening < 0)
		return -errno;
	unlink(early); /* left by a process that had our PID */
	if (bind(control->listening, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	if (chmod(early, 0600) || listen(control->listening, 8) || rename(early, control->path)) {
		err = -errno;
		unlink(early);
		return err;
	}
	if (!control->feed)
		watch(control, control->listening, CLIENTS);
	return 0;
}

static void remove_stale(const char *folder);

/* Opens the socket, as like says who its clients are. 0 or -errno. */
static int open_socket(pid_t target, const char *folder, const struct control *like,
		       struct control **ret)
{
	struct control *control;
	char buf[80];
	int err;

	folder = folder_path(folder, like->feed ? FEEDS : "", buf);
	if (!folder)
		return -ENOENT;
	err = make_folder(folder, like->feed);
	if (err)
		return err;
	remove_stale(folder);
	control = calloc(1, sizeof(*control));
	if (!control)
		return -ENOMEM;
	*control = *like;
	control->listening = control->epoll = -1;
	for (int i = 0; i < CLIENTS; i++)
		control->clients[i].fd = -1;
	if ((size_t)snprintf(control->path, sizeof(control->path), "%s/%d.%d.sock", folder,
			     (int)target, (int)getpid()) >= sizeof(control->path)) {
		free(control);
		return -ENAMETOOLONG;
	}
	err = listen_at(control);
	if (err) {
		control__close(control);
		return err;
	}
	*ret = control;
	return 0;
}

int control__open(pid_t target, const char *folder, control_handler *handler, void *ctx,
		  struct control **ret)
{
	const struct control like = { .handler = handler, .ctx = ctx };

	return open_socket(target, folder, &like, ret);
}

int control__open_feed(pid_t target, const char *folder, const struct control_feed *feed,
		       struct control **ret)
{
	const struct control like = { .feed = feed };

	return open_socket(target, folder, &like, ret);
}

void control__close(struct control *control)
{
	if (!control)
		return;
	for (int i = 0; i < CLIENTS; i++) {
		if (control->clients[i].fd >= 0)
			close(control->clients[i].fd);
	}
	if (control->listening >= 0) {
		close(control->listening);
		unlink(control->path);
	}
	if (control->epoll >= 0)
		close(control->epoll);
	free(control);
}

int control__fd(const struct control *control)
{
	return control->epoll;
}

/* ---- clients ---- */

static void disconnect(struct client *k)
{
	close(k->fd);
	k->fd = -1;
}

/* True if a program of this user may connect. */
static bool is_trusted(const struct control *control, uid_t uid)
{
	const uid_t *users;
	size_t n = control->feed ? control->feed->users(control->feed->ctx, &users) : 0;

	if (uid == 0 || uid == geteuid())
		return true;
	for (size_t i = 0; i < n; i++)
		if (users[i] == uid)
			return true;
	return false;
}

/* Returns a place for a client of this user: a free one, or if the user has taken its share, that
 * of its oldest client, which may never send or read. -1: all are taken by others. */
static int find_place(const struct control *control, uid_t uid)
{
	int of_user = 0, oldest = -1, free_one = -1;

	for (int i = 0; i < CLIENTS; i++) {
		const struct client *k = &control->clients[i];

		if (k->fd < 0) {
			free_one = i;
		} else if (k->uid == uid) {
			of_user++;
			if (oldest < 0 || k->since < control->clients[oldest].since)
				oldest = i;
		}
	}
	return of_user < CLIENTS_OF_A_USER ? free_one : oldest;
}

/* Sends a reader of the feed all messages that it has not got, as far as it reads them. */
static void feed_client(struct control *control, struct client *k)
{
	const struct control_feed *feed = control->feed;
	uint64_t at = k->at;
	const char *text;
	size_t len;

	while ((text = feed->next(feed->ctx, k->uid, &at))) {
		len = strlen(text);
		if (send(k->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len) {
			if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
				disconnect(k);
			return; /* k->at is still before this message */
		}
		k->at = at;
	}
	k->at = at;
}

/* Tells a new reader of the feed who we are, and its own PID as we see it. */
static void greet(struct client *k, pid_t pid)
{
	char text[160];
	int len = snprintf(text, sizeof(text),
			   "{\"kind\":\"hello\",\"capturer\":%d,\"you\":%d,\"version\":\"%s\"}",
			   (int)getpid(), (int)pid, MEMTRACE_VERSION);

	shutdown(k->fd, SHUT_RD);
	if (send(k->fd, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) != len)
		disconnect(k);
}

/* Accepts a client, or refuses it. False: there is none. */
static bool accept_client(struct control *control)
{
	int fd = accept4(control->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), place = -1;
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (fd < 0)
		return false;
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && is_trusted(control, peer.uid))
		place = find_place(control, peer.uid);
	if (place < 0) {
		close(fd);
		return true;
	}
	if (control->clients[place].fd >= 0)
		disconnect(&control->clients[place]);
	control->clients[place] = (struct client){ .fd = fd,
						   .since = ++control->connected,
						   .uid = peer.uid };
	if (control->feed)
		greet(&control->clients[place], peer.pid);
	else
		watch(control, fd, place);
	return true;
}

/* Lets exactly these users open the socket, besides us. 0 or -errno. */
static int set_acl(const char *path, const uid_t *users, size_t n)
{
	enum { OWNER = 1, USER = 2, GROUP = 4, MASK = 16, OTHERS = 32, READ_WRITE = 6 };
	struct {
		uint32_t version;
		struct {
			uint16_t tag, permissions;
			uint32_t id;
		} entries[ACL_USERS + 4];
	} acl = { .version = htole32(2) };
	uint32_t no_one = UINT32_MAX;
	size_t at = 0;

	acl.entries[at++] = (typeof(*acl.entries)){ htole16(OWNER), htole16(READ_WRITE), no_one };
	for (size_t i = 0; i < n; i++)
		acl.entries[at++] = (typeof(*acl.entries)){ htole16(USER), htole16(READ_WRITE),
							    htole32(users[i]) };
	acl.entries[at++] = (typeof(*acl.entries)){ htole16(GROUP), 0, no_one };
	acl.entries[at++] = (typeof(*acl.entries)){ htole16(MASK), htole16(READ_WRITE), no_one };
	acl.entries[at++] = (typeof(*acl.entries)){ htole16(OTHERS), 0, no_one };
	if (lsetxattr(path, "system.posix_acl_access", &acl,
		      sizeof(acl.version) + at * sizeof(*acl.entries), 0))
		return -errno;
	return 0;
}

/* Lets the feed's users open the socket. No other can then: nobody else keeps it busy. That needs
 * no privilege but an access control list, which not all file systems have. */
static void admit_users(struct control *control)
{
	const uid_t *users;
	size_t n = control->feed->users(control->feed->ctx, &users);

	if (n == control->users)
		return;
	control->users = n;
	if (n <= ACL_USERS && !set_acl(control->path, users, n))
		return;
	if (chmod(control->path, 0666))
		log_warn("%s: its users cannot open it: %s", control->path, strerror(errno));
}

void control__feed(struct control *control)
{
	unsigned long before = control->connected;

	admit_users(control);
	/* One reader at a time: a user that connects again and again must not hold up the capture. */
	for (int n = 0; n < REFUSED_AT_ONCE && control->connected == before; n++)
		if (!accept_client(control))
			break;
	for (int i = 0; i < CLIENTS; i++)
		if (control->clients[i].fd >= 0)
			feed_client(control, &control->clients[i]);
}

/* Splits a request into action and argument, in place. False: it is not text. */
static bool parse(char *request, size_t len, char **action, char **argument)
{
	char clean[CONTROL_REQUEST + 1];

	while (len && (request[len - 1] == '\n' || request[len - 1] == ' '))
		len--;
	request[len] = '\0';
	if (!len || strlen(request) != len ||
	    strcmp(text__clean(clean, sizeof(clean), request, len), request))
		return false;
	*action = request;
	*argument = request + strcspn(request, " ");
	while (**argument == ' ')
		*(*argument)++ = '\0';
	return **action;
}

/* Writes the answer to a request as a JSON object. */
static void write_answer(struct control *control, FILE *out, char *request, size_t len)
{
	struct json *j = json__new(out, false);
	char *action, *argument;
	int err = -EINVAL;

	if (!j)
		return;
	json__open_object(j, NULL);
	if (len > CONTROL_REQUEST)
		json__string(j, "error", "the request is too long");
	else if (!parse(request, len, &action, &argument))
		json__string(j, "error", "the request is not text");
	else
		err = control->handler(control->ctx, action, argument, j);
	if (err == -ENOTSUP)
		json__string(j, "error",
			     "the capture does not know this action; it may be of another version "
			     "of memtrace-bpf");
	json__bool(j, "ok", !err);
	json__close_object(j);
	json__free(j);
}

/* Reads a request and sends the answer. Drops a client that has gone or does not take the answer at
 * once. */
static void serve_client(struct control *control, struct client *k)
{
	char request[CONTROL_REQUEST + 2], *text = NULL;
	size_t size = 0;
	ssize_t len = recv(k->fd, request, sizeof(request) - 1, MSG_DONTWAIT);
	FILE *out;

	if (len <= 0) {
		if (!len || (errno != EAGAIN && errno != EINTR))
			disconnect(k);
		return;
	}
	out = open_memstream(&text, &size);
	if (out) {
		write_answer(control, out, request, (size_t)len);
		if (fclose(out))
			size = 0;
	}
	if (!size || size > CONTROL_ANSWER ||
	    send(k->fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size)
		disconnect(k);
	free(text);
}

void control__pump(struct control *control)
{
	struct epoll_event events[16];

	for (int round = 0; round < REQUESTS; round++) {
		int n_events = epoll_wait(control->epoll, events, 16, 0);

		if (n_events <= 0)
			return;
		for (int i = 0; i < n_events; i++) {
			if (events[i].data.u32 == CLIENTS)
				accept_client(control);
			else if (control->clients[events[i].data.u32].fd >= 0)
				serve_client(control, &control->clients[events[i].data.u32]);
		}
	}
}

/* ---- client ---- */

/* Connects to the socket of that name. Returns a descriptor or -errno. Removes the socket of a
 * capture that was killed. */
static int connect_to(const char *folder, const char *name)
{
	const struct timeval timeout = { .tv_sec = ANSWER_TIMEOUT };
	struct sockaddr_un sa;
	char path[160];
	int fd, err;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	err = set_address(&sa, path);
	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	err = -errno;
	close(fd);
	if (err == -ECONNREFUSED)
		unlink(path);
	return err;
}

/* Parses the file name of a socket, "TARGET.CAPTURER.sock". False: it is another file. */
static bool parse_name(const char *name, struct control_place *ret)
{
	int target, capturer, end = 0;

	if (sscanf(name, "%9d.%9d.sock%n", &target, &capturer, &end) != 2 || !end || name[end] ||
	    target <= 0 || capturer <= 0)
		return false;
	*ret = (struct control_place){ target, capturer };
	return true;
}

/* Removes sockets that killed captures left. Keeps those of running programs: a stopped program
 * refuses connections, too. */
static void remove_stale(const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	struct control_place place;

	while (dir && (entry = readdir(dir))) {
		if (parse_name(entry->d_name, &place) && kill(place.capturer, 0) &&
		    errno == ESRCH) {
			/* The capture may run in another PID namespace: it is gone only if it
			 * refuses. */
			int fd = connect_to(folder, entry->d_name);

			if (fd >= 0)
				close(fd);
		}
	}
	if (dir)
		closedir(dir);
}

static int by_pid(const void *x, const void *y)
{
	const struct control_place *a = x, *b = y;

	if (a->target != b->target)
		return a->target < b->target ? -1 : 1;
	return (a->capturer > b->capturer) - (a->capturer < b->capturer);
}

ssize_t control__find(const char *folder, pid_t pid, struct control_place **ret)
{
	struct control_place *places, place;
	const struct dirent *entry;
	char buf[80];
	ssize_t n = 0;
	DIR *dir;

	folder = folder_path(folder, "", buf);
	dir = folder ? opendir(folder) : NULL;
	if (!dir)
		return folder ? -errno : -ENOENT;
	places = calloc(PLACES, sizeof(*places));
	while (places && n < PLACES && (entry = readdir(dir))) {
		int fd;

		if (!parse_name(entry->d_name, &place) ||
		    (pid && place.target != pid && place.capturer != pid))
			continue;
		fd = connect_to(folder, entry->d_name);
		if (fd < 0)
			continue;
		close(fd);
		places[n++] = place;
	}
	closedir(dir);
	if (!places)
		return -ENOMEM;
	qsort(places, (size_t)n, sizeof(*places), by_pid);
	*ret = places;
	return n;
}

/* Sends a request and receives its answer, which the caller frees. 0 or -errno. */
static int exchange(int fd, const char *request, char **ret)
{
	char *text = malloc(CONTROL_ANSWER + 1);
	ssize_t len;
	int err;

	if (!text)
		return -ENOMEM;
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0) {
		err = -errno;
		goto fail;
	}
	len = recv(fd, text, CONTROL_ANSWER, 0);
	if (len > 0) {
		text[len] = '\0';
		*ret = text;
		return 0;
	}
	err = -ECONNRESET;
	if (len < 0)
		err = errno == EAGAIN ? -ETIMEDOUT : -errno;
fail:
	free(text);
	return err;
}

int control__ask(const char *folder, const struct control_place *p, const char *request, char **ret)
{
	char buf[80], name[40];
	int fd, err;

	folder = folder_path(folder, "", buf);
	if (!folder)
		return -ENOENT;
	snprintf(name, sizeof(name), "%d.%d.sock", (int)p->target, (int)p->capturer);
	fd = connect_to(folder, name);
	if (fd < 0)
		return fd;
	err = exchange(fd, request, ret);
	close(fd);
	return err;
}
