#include <stdexcept>
#include <string>
struct Problem : std::runtime_error {
    int code;
    Problem(const std::string &text, int code);
    ~Problem() override;
};
struct Noisy {
    const char *name;
    explicit Noisy(const char *name);
    ~Noisy();
};
void fail(int depth, int code);
int guarded(int code);
[[noreturn]] void fail_with_number(int number);
