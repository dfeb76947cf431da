// libgoogle-glog-dev: glog gflags unwind lzma; pthread
#include <cstdio>
#include <glog/logging.h>

struct Sink : google::LogSink {
    void send(google::LogSeverity severity, const char *, const char *file, int, const google::LogMessageTime &, const char *message, size_t size) override {
        std::printf("%d %s %.*s\n", severity, file, (int)size, message);
    }
};

int main(int, char **argv) {
    google::InitGoogleLogging(argv[0]);
    FLAGS_logtostderr = true, FLAGS_minloglevel = 0, FLAGS_stderrthreshold = 4;
    Sink sink;
    google::AddLogSink(&sink);
    LOG(INFO) << "one " << 1;
    LOG_IF(WARNING, 2 > 1) << "two";
    for (int i = 0; i < 10; i++) {
        LOG_EVERY_N(ERROR, 4) << google::COUNTER;
    }
    google::RemoveLogSink(&sink);
    google::ShutdownGoogleLogging();
}
