/*
 * protect.c
 *		Runs code that may fail for the contents of a record, so that only the record is lost.
 *
 * Such code runs as the owner of the relation, in a security-restricted context, with settings that
 * make its results depend on the record alone, at a nest level of GUCs of its own. It runs in a
 * subtransaction, as whatever an error leaves behind has to go: locks, buffers, pins, what a function
 * has written. Both are entered when they are first needed and kept for all records of one
 * sx_decode(). After an error there is a new subtransaction; the user and the settings stay, because
 * they are older than it is.
 *
 * What is no fault of a record goes on to the caller, once the subtransaction is gone and the
 * caller's user and settings are back.
 *
 * PostgreSQL 15 and 16 have no subtransactions while a parallel plan runs. Then code runs without
 * one, and a bad record fails the statement.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "decode_internal.h"

/* Bytes of a message, without what we put in front. */
#define MAX_MESSAGE 1000

/* What the server's input functions, and casts in constraints, look at. */
static const char *const settings[][2] = {{"TimeZone", "UTC"},
										  {"DateStyle", "ISO, MDY"},
										  {"IntervalStyle", "postgres"},
										  {"search_path", "pg_catalog, pg_temp"},
										  {"timezone_abbreviations", "Default"},
										  {"array_nulls", "on"},
										  {"bytea_output", "hex"},
										  {"extra_float_digits", "1"},
										  {"xmloption", "content"},
										  {"lc_monetary", "C"}};

static void
enter_frame(SxDecoder *decoder)
{
	GetUserIdAndSecContext(&decoder->saved_user, &decoder->saved_context);
	decoder->nest_level = NewGUCNestLevel();
	decoder->in_frame = true;
	SetUserIdAndSecContext(decoder->owner, decoder->saved_context | SECURITY_RESTRICTED_OPERATION);
	for (int i = 0; i < lengthof(settings); i++)
	{
		const char *value = GetConfigOption(settings[i][0], false, false);

		if (value == NULL || strcmp(value, settings[i][1]) != 0)
			(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
	}
}

static void
leave_frame(SxDecoder *decoder)
{
	if (!decoder->in_frame)
		return;
	AtEOXact_GUC(false, decoder->nest_level);
	SetUserIdAndSecContext(decoder->saved_user, decoder->saved_context);
	decoder->in_frame = false;
}

static void
begin_subtransaction(SxDecoder *decoder)
{
	MemoryContext cxt = CurrentMemoryContext;

	decoder->resource_owner = CurrentResourceOwner;
	BeginInternalSubTransaction(NULL);
	decoder->in_subtransaction = true;
	/* values outlive the subtransaction */
	MemoryContextSwitchTo(cxt);
}

/*
 * Would the same record fail again, whatever the circumstances? A request for more memory than one
 * piece can have is an internal error of the server, but due to the length of a value.
 */
static bool
is_fault_of_record(const SxDecoder *decoder, const ErrorData *error)
{
	if (error->message_id != NULL &&
		strncmp(error->message_id, "invalid memory alloc request size", 33) == 0)
		return true;
	switch (error->sqlerrcode)
	{
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
			return false;
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_COLUMN:
			/* what the constraint needs is gone; for a type like regclass it is the value */
			return decoder->running_check == NULL;
		default:
			break;
	}
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_CONNECTION_EXCEPTION:
		case ERRCODE_INVALID_TRANSACTION_STATE:
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_CONFIG_FILE_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return true;
	}
}

/* Copies a message to the batch, with a question mark for each byte that is no text, and cut. */
static char *
clean_message(SxDecoder *decoder, const char *message)
{
	size_t left = strlen(message);
	size_t size = 0;
	char *result = MemoryContextAlloc(decoder->batch->cxt, Min(left, MAX_MESSAGE) + 1);

	while (left > 0)
	{
		int len = pg_encoding_verifymbchar(GetDatabaseEncoding(), message, (int) Min(left, 8));
		bool is_valid = len > 0;

		len = Max(len, 1);
		if (size + len > MAX_MESSAGE)
			break;
		memcpy(result + size, is_valid ? message : "?", len);
		size += len;
		message += len;
		left -= len;
	}
	result[size] = '\0';
	return result;
}

void
sx_kill(SxDecoder *decoder, int sqlerrcode, const char *format, ...)
{
	StringInfoData message;

	initStringInfo(&message);
	for (;;)
	{
		va_list args;
		int needed;

		va_start(args, format);
		needed = appendStringInfoVA(&message, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&message, needed);
	}
	decoder->dead_code = sqlerrcode;
	decoder->dead_message = clean_message(decoder, message.data);
}

static void
kill_by_error(SxDecoder *decoder, const ErrorData *error)
{
	const char *message = error->message != NULL ? error->message : "unknown error";
	const char *detail = error->detail != NULL ? error->detail : "";
	const char *open = error->detail != NULL ? " (" : "";
	const char *close = error->detail != NULL ? ")" : "";
	int code = error->sqlerrcode;

	if (ERRCODE_TO_CATEGORY(code) == ERRCODE_INTERNAL_ERROR)
		code = ERRCODE_PROGRAM_LIMIT_EXCEEDED;
	if (decoder->running_column != NULL)
		sx_kill(decoder, code, "column \"%s\": %s%s%s%s", decoder->running_column->name, message,
				open, detail, close);
	else if (decoder->running_check != NULL)
		sx_kill(decoder, code, "check constraint \"%s\": %s%s%s%s", decoder->running_check->name,
				message, open, detail, close);
	else
		sx_kill(decoder, code, "%s%s%s%s", message, open, detail, close);
}

/* What was running may be in any state. */
static void
discard_running(SxDecoder *decoder)
{
	if (decoder->running_column != NULL)
		decoder->running_column->is_ready = false;
	if (decoder->running_check != NULL)
		decoder->running_check->is_ready = false;
	decoder->running_column = NULL;
	decoder->running_check = NULL;
}

bool
sx_protect_run(SxDecoder *decoder, void (*step)(SxDecoder *decoder))
{
	MemoryContext cxt = CurrentMemoryContext;

	if (!decoder->in_frame)
		enter_frame(decoder);
	if (!decoder->in_subtransaction && (sx_parallel_subtransactions || !IsInParallelMode()))
		begin_subtransaction(decoder);
	decoder->running_column = NULL;
	decoder->running_check = NULL;
	PG_TRY();
	{
		step(decoder);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		if (!is_fault_of_record(decoder, error))
		{
			discard_running(decoder);
			PG_RE_THROW();
		}
		FlushErrorState();
		kill_by_error(decoder, error);
		discard_running(decoder);
		if (!decoder->in_subtransaction)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot leave out a bad record while a parallel plan runs"),
							errdetail("Partition %d, offset %lld: %s.", decoder->record->partition,
									  (long long) decoder->record->offset, decoder->dead_message),
							errhint("Set \"max_parallel_workers_per_gather\" to 0.")));
		RollbackAndReleaseCurrentSubTransaction();
		decoder->in_subtransaction = false;
		MemoryContextSwitchTo(cxt);
		CurrentResourceOwner = decoder->resource_owner;
	}
	PG_END_TRY();
	return decoder->dead_code == 0;
}

void
sx_protect_end(SxDecoder *decoder)
{
	MemoryContext cxt = CurrentMemoryContext;

	if (decoder->in_subtransaction)
	{
		decoder->in_subtransaction = false;
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(cxt);
		CurrentResourceOwner = decoder->resource_owner;
	}
	leave_frame(decoder);
}

void
sx_protect_rethrow(SxDecoder *decoder)
{
	ErrorData *error;

	if (!decoder->in_subtransaction && !decoder->in_frame)
		PG_RE_THROW();
	MemoryContextSwitchTo(decoder->caller_cxt);
	error = CopyErrorData();
	FlushErrorState();
	if (decoder->in_subtransaction)
	{
		decoder->in_subtransaction = false;
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(decoder->caller_cxt);
		CurrentResourceOwner = decoder->resource_owner;
	}
	leave_frame(decoder);
	ReThrowError(error);
}

void
sx_protect_as_owner(SxDecoder *decoder, void (*step)(SxDecoder *decoder))
{
	enter_frame(decoder);
	PG_TRY();
	{
		step(decoder);
	}
	PG_FINALLY();
	{
		leave_frame(decoder);
	}
	PG_END_TRY();
}
