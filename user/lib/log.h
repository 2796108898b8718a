/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_LOG_H
#define MT_LIB_LOG_H
/*
 * Messages to the person at the terminal: standard error only, one line each, "memtrace-bpf: " in
 * front. Text from the target must have passed text__clean() before.
 */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* LOG_INFO at first; -v gives LOG_DEBUG, -q LOG_WARN. */
void log__set_level(enum log_level level);
enum log_level log__level(void);
/*
 * While set, messages go there instead of standard error, cleaned and without "memtrace-bpf: " and the like in front: the
 * screen is not theirs. NULL: standard error again.
 */
void log__divert(void (*to)(void *ctx, enum log_level level, const char *text), void *ctx);
void log__print(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_err(...) log__print(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log__print(LOG_WARN, __VA_ARGS__)
#define log_info(...) log__print(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log__print(LOG_DEBUG, __VA_ARGS__)

#endif
