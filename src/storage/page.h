/*
 * page.h
 *		Facts about single pages of a stream.
 */
#ifndef STREAM_EXT_STORAGE_PAGE_H
#define STREAM_EXT_STORAGE_PAGE_H

#include "storage/bufpage.h"

/*
 * True if nothing was ever WAL-logged for this page and it has no row. Once that is false it stays
 * so: whatever empties a page again is logged. "Empty" would not do: a block that VACUUM has
 * emptied may have been closed by a reader. Caller holds the buffer's content lock.
 */
static inline bool
sx_page_is_virgin(Page page)
{
	if (PageIsNew(page))
		return true;
	return XLogRecPtrIsInvalid(PageGetLSN(page)) && PageGetMaxOffsetNumber(page) == 0;
}

#endif /* STREAM_EXT_STORAGE_PAGE_H */
