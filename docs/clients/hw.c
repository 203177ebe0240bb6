/* hw METHOD PARAMS: one call to the daemon, its reply on stdout; exit 1 without one. Build: cc -o hw hw.c */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
int main(int count, char **words) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char *where = getenv("HWTOOL_SOCKET");
    snprintf(at.sun_path, sizeof at.sun_path, "%s/agent.sock", where ? where : "/run/hwtool");
    int line = socket(AF_UNIX, SOCK_STREAM, 0), c, last = 0;
    if (count < 3 || connect(line, (struct sockaddr *)&at, sizeof at)) return perror(at.sun_path), 1;
    dprintf(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}\n", words[1], words[2]);
    for (FILE *reply = fdopen(line, "r"); last != '\n' && (c = getc(reply)) != EOF;) putchar(last = c);
    return last != '\n';
}
