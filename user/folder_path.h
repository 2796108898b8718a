/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLDER_PATH_H
#define MT_FOLDER_PATH_H
/* One recording of a folder, as a person names it: "run#3". */

/*
 * The file that "FOLDER#N" stands for: the segment of that number, else the N-th recording from 1 on. *ret is for free(); NULL: it is no
 * such name, or it is a file as it stands. 0, or EXIT_FAILED, EXIT_UNUSABLE (logged).
 */
int folder_path__resolve(const char *path, char **ret);
/* Says that path is a folder, and what in it can be named. EXIT_UNUSABLE. */
int folder_path__say_folder(const char *path);

#endif
