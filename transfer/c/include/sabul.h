/* sabul: reliable, encrypted bulk transfer. Written by cbindgen from the crate sabul-c; see docs/manual/c.md. */

#ifndef SABUL_H
#define SABUL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The call succeeded.
 */
#define SABUL_OK 0

/*
 The transfer or request failed, completely or in part.
 */
#define SABUL_FAILED 1

/*
 An argument is not valid.
 */
#define SABUL_USAGE 2

/*
 The server cannot be reached, or the connection was lost.
 */
#define SABUL_UNREACHABLE 3

/*
 The server does not accept the ticket or key.
 */
#define SABUL_AUTHENTICATION 4

/*
 The content that arrived is not the content that was sent.
 */
#define SABUL_VERIFICATION 5

/*
 The destination has no space or gives no permission.
 */
#define SABUL_DESTINATION 6

/*
 The call was interrupted.
 */
#define SABUL_INTERRUPTED 130

/*
 The file or directory does not exist. The program has no such exit code.
 */
#define SABUL_NOT_FOUND 201

/*
 A file.
 */
#define SABUL_KIND_FILE 1

/*
 A directory.
 */
#define SABUL_KIND_DIRECTORY 2

/*
 A symbolic link.
 */
#define SABUL_KIND_LINK 3

/*
 A device, pipe or socket.
 */
#define SABUL_KIND_OTHER 4

/*
 Session with a server.
 */
typedef struct SabulSession SabulSession;

/*
 Result of a transfer.
 */
typedef struct {
  /*
   Content bytes at the receiver.
   */
  uint64_t bytes;
  /*
   Files and directories that are complete and verified.
   */
  uint64_t entries;
  /*
   Files and directories that failed.
   */
  uint64_t failed;
  /*
   Seconds from the start of the transfer to its end.
   */
  double seconds;
  /*
   Content bytes over the time, in bit/s.
   */
  double goodput_bps;
} SabulReport;

/*
 A file or directory.
 */
typedef struct {
  /*
   `SABUL_KIND_FILE` or another kind.
   */
  int32_t kind;
  /*
   Permission bits.
   */
  uint32_t mode;
  /*
   Size in bytes.
   */
  uint64_t size;
  /*
   Modification time in nanoseconds since 1970, or 0 if the server does not report the time.
   */
  int64_t modified_ns;
} SabulEntry;

/*
 Called for each entry of a listing: its path, its attributes, and the context of the caller. A result other than 0
 ends the listing.
 */
typedef int32_t (*SabulListCallback)(const char*, const SabulEntry*, void*);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the library.
 */
const char *sabul_version(void);

/*
 Returns the reason why the last failed call of this thread failed, in UTF-8. Empty before the first failure. The text
 is valid until the next failed call of this thread.
 */
const char *sabul_message(void);

/*
 Connects to the server of a ticket file. Close the session by `sabul_close`.

 # Safety
 `ticket_file` is a string that ends in NUL; `session` is the address of a pointer.
 */
int32_t sabul_connect(const char *ticket_file, SabulSession **session);

/*
 Connects to a host that ssh reaches, such as `me@example.org`. The program sabul must be there. Close the session by
 `sabul_close`.

 # Safety
 `host` is a string that ends in NUL; `session` is the address of a pointer.
 */
int32_t sabul_connect_ssh(const char *host,
                          SabulSession **session);

/*
 Closes a session. The pointer is not valid afterwards. NULL is ignored.

 # Safety
 `session` is NULL or an open session, which no other thread uses.
 */
void sabul_close(SabulSession *session);

/*
 Sends a file, or with `recursive` a directory with its content, to `remote` on the server. An existing directory, or a
 path that ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.

 # Safety
 `session` is open, the strings end in NUL, and `report` is NULL or valid.
 */
int32_t sabul_put(const SabulSession *session,
                  const char *local,
                  const char *remote,
                  bool recursive,
                  SabulReport *report);

/*
 Receives a file, or with `recursive` a directory with its content, into `local`. An existing directory, or a path that
 ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.

 # Safety
 `session` is open, the strings end in NUL, and `report` is NULL or valid.
 */
int32_t sabul_get(const SabulSession *session,
                  const char *remote,
                  const char *local,
                  bool recursive,
                  SabulReport *report);

/*
 Reads at most `length` bytes of a file from `offset` into `buffer`. Sets `read` to their number, which is smaller only
 at the end of the file.

 # Safety
 `session` is open, `path` ends in NUL, `buffer` has room for `length` bytes, and `read` is valid.
 */
int32_t sabul_read(const SabulSession *session,
                   const char *path,
                   uint64_t offset,
                   void *buffer,
                   size_t length,
                   size_t *read);

/*
 Writes `length` bytes as the content of a file. The file appears complete or not at all.

 # Safety
 `session` is open, `path` ends in NUL, and `content` has `length` bytes.
 */
int32_t sabul_write(const SabulSession *session,
                    const char *path,
                    const void *content,
                    size_t length);

/*
 Lists a directory, or all entries below the directory with `recursive`.

 # Safety
 `session` is open, `path` ends in NUL, and `callback` does not keep its pointers.
 */
int32_t sabul_list(const SabulSession *session,
                   const char *path,
                   bool recursive,
                   SabulListCallback callback,
                   void *context);

/*
 Returns the attributes of a file or directory. The result is `SABUL_NOT_FOUND` if there is none.

 # Safety
 `session` is open, `path` ends in NUL, and `entry` is valid.
 */
int32_t sabul_stat(const SabulSession *session, const char *path, SabulEntry *entry);

/*
 Creates a directory and the directories above it.

 # Safety
 `session` is open and `path` ends in NUL.
 */
int32_t sabul_make_directory(const SabulSession *session, const char *path);

/*
 Removes a file, or with `recursive` a directory with its content, if the server permits removals.

 # Safety
 `session` is open and `path` ends in NUL.
 */
int32_t sabul_remove(const SabulSession *session, const char *path, bool recursive);

/*
 Renames a file or directory. With `replace`, an existing file is replaced.

 # Safety
 `session` is open and both paths end in NUL.
 */
int32_t sabul_rename(const SabulSession *session, const char *from, const char *to, bool replace);

/*
 Returns the reason why the last failed call of this thread failed, in UTF-8. Empty before the first failure. The text
 is valid until the next failed call of this thread.
 */
const char *sabul_message(void);

/*
 Connects to the server of a ticket file. Close the session by `sabul_close`.

 # Safety
 `ticket_file` is a string that ends in NUL; `session` is the address of a pointer.
 */
int32_t sabul_connect(const char *ticket_file, SabulSession **session);

/*
 Connects to a host that ssh reaches, such as `me@example.org`. The program sabul must be there. Close the session by
 `sabul_close`.

 # Safety
 `host` is a string that ends in NUL; `session` is the address of a pointer.
 */
int32_t sabul_connect_ssh(const char *host,
                          SabulSession **session);

/*
 Closes a session. The pointer is not valid afterwards. NULL is ignored.

 # Safety
 `session` is NULL or an open session, which no other thread uses.
 */
void sabul_close(SabulSession *session);

/*
 Sends a file, or with `recursive` a directory with its content, to `remote` on the server. An existing directory, or a
 path that ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.

 # Safety
 `session` is open, the strings end in NUL, and `report` is NULL or valid.
 */
int32_t sabul_put(const SabulSession *session,
                  const char *local,
                  const char *remote,
                  bool recursive,
                  SabulReport *report);

/*
 Receives a file, or with `recursive` a directory with its content, into `local`. An existing directory, or a path that
 ends in a slash, receives the source. `report` may be NULL; it is also set if single files fail.

 # Safety
 `session` is open, the strings end in NUL, and `report` is NULL or valid.
 */
int32_t sabul_get(const SabulSession *session,
                  const char *remote,
                  const char *local,
                  bool recursive,
                  SabulReport *report);

/*
 Reads at most `length` bytes of a file from `offset` into `buffer`. Sets `read` to their number, which is smaller only
 at the end of the file.

 # Safety
 `session` is open, `path` ends in NUL, `buffer` has room for `length` bytes, and `read` is valid.
 */
int32_t sabul_read(const SabulSession *session,
                   const char *path,
                   uint64_t offset,
                   void *buffer,
                   size_t length,
                   size_t *read);

/*
 Writes `length` bytes as the content of a file. The file appears complete or not at all.

 # Safety
 `session` is open, `path` ends in NUL, and `content` has `length` bytes.
 */
int32_t sabul_write(const SabulSession *session,
                    const char *path,
                    const void *content,
                    size_t length);

/*
 Lists a directory, or all entries below the directory with `recursive`.

 # Safety
 `session` is open, `path` ends in NUL, and `callback` does not keep its pointers.
 */
int32_t sabul_list(const SabulSession *session,
                   const char *path,
                   bool recursive,
                   SabulListCallback callback,
                   void *context);

/*
 Returns the attributes of a file or directory. The result is `SABUL_NOT_FOUND` if there is none.

 # Safety
 `session` is open, `path` ends in NUL, and `entry` is valid.
 */
int32_t sabul_stat(const SabulSession *session, const char *path, SabulEntry *entry);

/*
 Creates a directory and the directories above it.

 # Safety
 `session` is open and `path` ends in NUL.
 */
int32_t sabul_make_directory(const SabulSession *session, const char *path);

/*
 Removes a file, or with `recursive` a directory with its content, if the server permits removals.

 # Safety
 `session` is open and `path` ends in NUL.
 */
int32_t sabul_remove(const SabulSession *session, const char *path, bool recursive);

/*
 Renames a file or directory. With `replace`, an existing file is replaced.

 # Safety
 `session` is open and both paths end in NUL.
 */
int32_t sabul_rename(const SabulSession *session, const char *from, const char *to, bool replace);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SABUL_H */
