/*
 * csv.c
 *		A record as one line of CSV, by the rules of COPY.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "decode_internal.h"

typedef struct CsvReader
{
	const SxDecoder *decoder;
	const char *p;
	const char *end;
	char *out; /* room for what is written without quotes; NULL: not made yet */
} CsvReader;

/*
 * Reads a field up to its delimiter or the end. A field without quotes stays where it is. False: it
 * is none, and *problem says why.
 */
static bool
read_field(CsvReader *reader, SxJsonSpan *span, const char **problem)
{
	const SxDecoder *decoder = reader->decoder;
	const char *start = reader->p;
	const char *p = start;
	const char *end = reader->end;
	char *out;

	while (p < end && *p != decoder->delimiter && *p != decoder->quote && *p != '\n' && *p != '\r')
		p++;
	span->kind = SX_JSON_STRING;
	span->start = start;
	if (p == end || *p == decoder->delimiter)
	{
		span->len = (uint32) (p - start);
		reader->p = p;
		if (strlen(decoder->null_string) == span->len &&
			memcmp(decoder->null_string, start, span->len) == 0)
			span->kind = SX_JSON_NULL;
		return true;
	}

	if (reader->out == NULL)
		reader->out = palloc(end - start + 1);
	out = reader->out;
	memcpy(out, start, p - start);
	out += p - start;
	while (p < end && *p != decoder->delimiter)
	{
		if (*p == '\n' || *p == '\r')
		{
			*problem = "line break outside of quotes";
			return false;
		}
		if (*p != decoder->quote)
		{
			*out++ = *p++;
			continue;
		}
		for (p++;; p++)
		{
			if (p == end)
			{
				*problem = "quotes are not closed";
				return false;
			}
			if (*p == decoder->escape && end - p > 1 &&
				(p[1] == decoder->escape || p[1] == decoder->quote))
				p++;
			else if (*p == decoder->quote)
				break;
			*out++ = *p;
		}
		p++;
	}
	span->start = reader->out;
	span->len = (uint32) (out - reader->out);
	reader->out = out;
	reader->p = p;
	return true;
}

void
sx_csv_split(SxDecoder *decoder, const char *text, size_t len)
{
	CsvReader reader = {.decoder = decoder, .p = text, .end = text + len};
	int nfields = 0;

	if (len > 0 && text[len - 1] == '\n')
		reader.end--;
	if (reader.end > text && reader.end < text + len && reader.end[-1] == '\r')
		reader.end--;

	for (;;)
	{
		SxJsonSpan ignored;
		const char *problem = NULL;

		/* no columns are written as an empty line */
		if (decoder->nvalue_columns == 0 && reader.p == reader.end)
			return;
		if (!read_field(&reader,
						nfields < decoder->nvalue_columns
							? &decoder->value_columns[nfields]->own_span
							: &ignored,
						&problem))
		{
			sx_kill(decoder, ERRCODE_BAD_COPY_FILE_FORMAT, "field %d of CSV: %s", nfields + 1,
					problem);
			return;
		}
		nfields++;
		if (reader.p == reader.end)
			break;
		reader.p++; /* the delimiter; a field follows, be it empty */
	}
	if (nfields != decoder->nvalue_columns)
		sx_kill(decoder, ERRCODE_BAD_COPY_FILE_FORMAT, "CSV has %d fields instead of %d", nfields,
				decoder->nvalue_columns);
}
