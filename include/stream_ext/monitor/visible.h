/*
 * visible.h
 *		Whose views the current user may see in the stat views.
 */
#ifndef STREAM_EXT_MONITOR_VISIBLE_H
#define STREAM_EXT_MONITOR_VISIBLE_H

/* Member of stream_monitor or stream_admin, or superuser: sees the views of all users. */
extern bool sx_monitor_sees_all(void);

/* May the current user see what belongs to 'owner'? */
extern bool sx_monitor_sees(Oid owner);

#endif /* STREAM_EXT_MONITOR_VISIBLE_H */
