/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CMD_COMMANDS_H
#define MT_CMD_COMMANDS_H
/* The commands. argv[0] is the command's name. Each returns an exit code (lib/exit.h). */
int cmd_live(int argc, char **argv); /* no command word: memtrace-bpf -p PID */
int cmd_record(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_estimate(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_leaks(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_check(int argc, char **argv);

#endif
