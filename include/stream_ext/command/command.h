/*
 * command.h
 *		What the commands of users do to streams and continuous views.
 */
#ifndef STREAM_EXT_COMMAND_COMMAND_H
#define STREAM_EXT_COMMAND_COMMAND_H

/* Installs the hooks and the label provider. Called by _PG_init, preloaded or not. */
extern void sx_command_init(void);

#endif /* STREAM_EXT_COMMAND_COMMAND_H */
