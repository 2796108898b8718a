/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/probes/demux.h"

#include <errno.h>

static int deal_to_all(struct demux *f, const void *rec, size_t len)
{
	int err = 0, ret;
	size_t i;

	for (i = 0; i < MT_MEMBERS; i++) {
		ret = f->at[i].fn ? f->at[i].fn(f->at[i].ctx, rec, len) : 0;
		if (ret && err != -ENOMEM)
			err = ret;
	}
	return err;
}

int demux__deal(struct demux *f, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;

	if (!f->at[h->member].fn && f->unknown)
		f->unknown(f->unknown_ctx);
	if (h->type == MT_REC_CODE_GONE)
		return deal_to_all(f, rec, len);
	return f->at[h->member].fn ? f->at[h->member].fn(f->at[h->member].ctx, rec, len) : 0;
}

void demux__set(struct demux *f, uint32_t number, feed_fn fn, void *ctx)
{
	number &= MT_MEMBERS - 1;
	f->at[number].fn = fn;
	f->at[number].ctx = ctx;
}
