/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/users.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/user.h"
#include "serve/broker/broker.h"
#include "serve/broker/jobs.h"

/* User IDs for processes without rights, if the server runs as root without --user. No user has
 * them: docs/internals/SERVE.md, "Isolation". */
#define OWN_IDS 0x6d740000u
#define OWN_IDS_NR 0x10000u

/* True if a uid_map or gid_map of the user namespace has all of OWN_IDS. */
static bool maps_own_ids(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned long long first, count;
	bool all = false;

	while (f && !all && fscanf(f, "%llu %*u %llu", &first, &count) == 2)
		all = first <= OWN_IDS && first + count >= (unsigned long long)OWN_IDS + OWN_IDS_NR;
	if (f)
		fclose(f);
	return all;
}

/* True if a running worker has this user. */
static bool worker_has_user(const struct broker *b, uid_t uid)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->running && j->uid == uid)
			return true;
	return false;
}

/* With ids.own, tries IDs from a random one on, until one is found that no process of the server
 * has. */
void users__new(const struct broker *b, uid_t *uid, gid_t *gid)
{
	uint16_t random = 0;
	bool taken = true;

	*uid = b->ids.uid;
	*gid = b->ids.gid;
	if (!b->ids.own)
		return;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = (uint16_t)clock__monotonic();
	while (taken) {
		*uid = OWN_IDS + random++;
		taken = worker_has_user(b, *uid);
		for (int k = 0; k < PEER_NR; k++)
			taken |= b->peers[k].process.pid && b->peers[k].uid == *uid;
	}
	*gid = *uid;
}

/* Chooses the user of processes without rights. 0 or an exit code, logged. */
static int choose_user(struct broker *b)
{
	struct user u = { .uid = geteuid(), .gid = getegid() };
	const char *name = b->args->user ? b->args->user : "nobody";

	b->ids.uid = u.uid;
	b->ids.gid = u.gid;
	if (geteuid()) {
		if (b->args->user) {
			log_err("--user: only root can switch to another user");
			return EXIT_NOT_PERMITTED;
		}
		return 0;
	}
	b->ids.own = !b->args->user && maps_own_ids("/proc/self/uid_map") &&
		     maps_own_ids("/proc/self/gid_map");
	if (b->ids.own)
		return 0;
	if (!b->args->user)
		log_warn("this user namespace has no user IDs from %u on: the unprivileged "
			 "processes run as nobody (which other services may use, too); choose "
			 "another user with --user NAME",
			 OWN_IDS);
	if (user__named(&u, name) || !u.uid) {
		log_err("--user: %s: %s", name,
			u.uid ? "no such user" : "must be a user other than root");
		return EXIT_USAGE;
	}
	b->ids.uid = u.uid;
	b->ids.gid = u.gid;
	return 0;
}

/* Chooses the user of commands: root only if the options say so. */
static int choose_command_user(struct broker *b)
{
	struct user u;
	bool sudo = false;

	if (geteuid())
		return 0;
	if (b->args->command_user) {
		if (user__named(&u, b->args->command_user)) {
			log_err("--command-user: no such user: %s", b->args->command_user);
			return EXIT_USAGE;
		}
		snprintf(b->command_user, sizeof(b->command_user), "%s", u.name);
		return 0;
	}
	if (!user__behind_sudo(&u, &sudo) && sudo)
		snprintf(b->command_user, sizeof(b->command_user), "%s", u.name);
	else
		snprintf(b->command_user, sizeof(b->command_user), "%s",
			 b->args->user ? b->args->user : "nobody");
	return 0;
}

int users__choose(struct broker *b)
{
	int status = choose_user(b);

	return status ? status : choose_command_user(b);
}
