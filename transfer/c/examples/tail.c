/* Sends a file to the server of a ticket, and prints its last bytes as the server has them.
 *
 *     cc tail.c -I ../include -L DIR -lsabul_c -o tail && LD_LIBRARY_PATH=DIR ./tail TICKET-FILE FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sabul.h"

static int fail(const char *what, int code) {
    fprintf(stderr, "tail: %s: %s\n", what, sabul_message());
    return code;
}

static int show(const char *path, const SabulEntry *entry, void *context) {
    printf("%s: %llu bytes\n", path, (unsigned long long)entry->size);
    ++*(int *)context;
    return 0;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: %s TICKET-FILE FILE\n", words[0]);
        return SABUL_USAGE;
    }
    SabulSession *session = NULL;
    int code = sabul_connect(words[1], &session);
    if (code) return fail("connect", code);

    SabulReport report;
    SabulEntry entry;
    char end[16];
    size_t got = 0;
    int files = 0;
    if ((code = sabul_put(session, words[2], "copies/", false, &report))) {
        fail("put", code);
    } else if ((code = sabul_rename(session, "copies", "kept", false))) {
        fail("rename", code);
    } else if ((code = sabul_list(session, "kept", false, show, &files))) {
        fail("list", code);
    } else if ((code = sabul_write(session, "kept/note", "done", 4))) {
        fail("write", code);
    } else if ((code = sabul_stat(session, "kept/note", &entry))) {
        fail("stat", code);
    } else if ((code = sabul_read(session, "kept/note", entry.size - 3, end, sizeof end, &got))) {
        fail("read", code);
    } else {
        printf("sent %llu bytes, %d file; the note ends in '%.*s'\n", (unsigned long long)report.bytes, files, (int)got, end);
        code = sabul_stat(session, "kept/none", &entry) == SABUL_NOT_FOUND ? SABUL_OK : SABUL_FAILED;
    }
    sabul_close(session);
    return code;
}
