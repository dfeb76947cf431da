// libhiredis-dev: hiredis
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    char *command;
    int size = redisFormatCommand(&command, "SET %s %b", "key", "a\0b", (size_t)3);
    printf("%d %08x\n", size, *(unsigned *)command);
    redisReader *reader = redisReaderCreate();
    const char *answer = "*3\r\n:42\r\n$5\r\nhello\r\n-ERR no\r\n";
    redisReply *reply;
    redisReaderFeed(reader, answer, strlen(answer));
    redisReaderGetReply(reader, (void **)&reply);
    for (size_t i = 0; i < reply->elements; i++)
        printf("%d %lld %s\n", reply->element[i]->type, reply->element[i]->integer, reply->element[i]->str ? reply->element[i]->str : "-");
    freeReplyObject(reply);
    redisContext *context = redisConnectUnix("/nonexistent/socket");
    printf("%s\n", context->errstr);
    redisFree(context);
    return 0;
}
