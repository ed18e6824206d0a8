// Blocks that functions of the C library make and the program frees, some of a size of their own.
#define _GNU_SOURCE
#include <dirent.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

int main(void) {
    static char text[6000];
    static wchar_t wide[1300];
    memset(text, 'x', 5000);
    free(strdup(text + 100)); // 4901 bytes
    free(strndup(text, 4990)); // 4991
    for (int i = 0; i < 1252; i++) wide[i] = L'y';
    free(wcsdup(wide)); // 1253 wide characters, 5012
    char *printed = NULL, *line = NULL, *out = NULL;
    size_t room = 0, length = 0;
    if (asprintf(&printed, "%s%d", text, 12) != 5002) return 3;
    free(printed);
    free(getcwd(NULL, 5020)); // 5020
    free(realpath(".", NULL));
    FILE *stream = open_memstream(&out, &length);
    if (!stream || fputs(text, stream) < 0 || fclose(stream) || length != 5000) return 4;
    FILE *again = fmemopen(out, length, "r");
    if (!again || getline(&line, &room, again) != 5000) return 5;
    fclose(again);
    free(line);
    free(out);
    regex_t pattern;
    if (regcomp(&pattern, "(x+)y*[a-z]{2,5}", REG_EXTENDED)) return 6;
    if (regexec(&pattern, "xxxyab", 0, NULL, 0)) return 7;
    regfree(&pattern);
    struct dirent **names;
    int count = scandir("/", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
    return count > 2 ? 0 : 8;
}
