// libprotobuf-dev: protobuf z; pthread
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <iostream>

using namespace google::protobuf;

int main() {
    Struct data;
    std::string text;
    std::cout << util::JsonStringToMessage("{\"a\": [1, true, null], \"b\": {\"c\": \"d\"}}", &data).ok() << '\n';
    TextFormat::PrintToString(data, &text);
    std::cout << text << data.SerializeAsString().size() << '\n';
    FileDescriptorProto file;
    file.set_name("made.proto"), file.set_syntax("proto3");
    auto *message = file.add_message_type();
    message->set_name("Made");
    auto *field = message->add_field();
    field->set_name("value"), field->set_number(1), field->set_type(FieldDescriptorProto::TYPE_INT32), field->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
    DescriptorPool pool;
    auto *type = pool.BuildFile(file)->FindMessageTypeByName("Made");
    DynamicMessageFactory factory;
    std::unique_ptr<Message> made(factory.GetPrototype(type)->New());
    made->GetReflection()->SetInt32(made.get(), type->FindFieldByName("value"), 77);
    std::cout << made->DebugString();
    ShutdownProtobufLibrary();
}
