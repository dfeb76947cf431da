// libprotobuf-c-dev: protobuf-c
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdio.h>

typedef struct { ProtobufCMessage base; int32_t number; char *text; } Made;

static const ProtobufCFieldDescriptor fields[] = {
    {.name = "number", .id = 1, .label = PROTOBUF_C_LABEL_NONE, .type = PROTOBUF_C_TYPE_INT32, .offset = offsetof(Made, number)},
    {.name = "text", .id = 2, .label = PROTOBUF_C_LABEL_NONE, .type = PROTOBUF_C_TYPE_STRING, .offset = offsetof(Made, text), .default_value = &protobuf_c_empty_string},
};
static const unsigned by_name[] = {0, 1};
static const ProtobufCIntRange ranges[] = {{1, 0}, {0, 2}};
static const ProtobufCMessageDescriptor descriptor = {
    PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC, "Made", "Made", "Made", "", sizeof(Made), 2, fields, by_name, 1, ranges, NULL, NULL, NULL, NULL};

int main(void) {
    Made made = {PROTOBUF_C_MESSAGE_INIT(&descriptor), -5, "hello"};
    uint8_t bytes[64];
    size_t size = protobuf_c_message_pack(&made.base, bytes);
    Made *back = (Made *)protobuf_c_message_unpack(&descriptor, NULL, size, bytes);
    printf("%zu %d %s\n", size, back->number, back->text);
    protobuf_c_message_free_unpacked(&back->base, NULL);
    return 0;
}
