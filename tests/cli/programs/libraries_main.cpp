// Uses much data of the C++ library: streams, tables with addresses of streams, thrown and caught types, vtables of base classes,
// flags that inline functions read.
#include <any>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <vector>

extern "C" int library_variables(int argc, char **argv);

struct Base {
    virtual ~Base() {}
    virtual const char *name() const { return "base"; }
};
struct Left : virtual Base {
    const char *name() const override { return "left"; }
};
struct Right : virtual Base {};
struct Both : Left, Right {
    const char *name() const override { return "both"; }
};
struct Derived : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Mine : std::exception {
    const char *what() const noexcept override { return "mine"; }
};
struct Counting : std::streambuf {
    long count = 0;
    int overflow(int c) override { return count++, c; }
};

std::ostream &out = std::cout;
std::ostream *outs[] = {&std::cout, &std::cerr, &std::clog};
const std::type_info *types[] = {&typeid(int), &typeid(std::exception), &typeid(Mine)};

void raise(int kind) {
    switch (kind) {
    case 0: throw 42;
    case 1: throw std::runtime_error("run");
    case 2: throw Derived("derived");
    case 3: throw Mine();
    case 4: throw "text";
    case 5: throw std::string("string");
    case 6: std::stoi("x"); break;
    case 7: throw std::system_error(std::make_error_code(std::errc::invalid_argument));
    case 8: std::vector<int>().at(3); break;
    case 9: std::map<int, int>().at(3); break;
    case 10: { Base base; (void)dynamic_cast<Both &>(base); break; }
    case 11: throw std::bad_alloc();
    case 12: std::function<void()>()(); break;
    case 13: (void)std::any_cast<int>(std::any(3.0)); break;
    case 14: (void)std::optional<int>().value(); break;
    case 15: throw 2.5f;
    }
}

void guarded(int kind) {
    try { raise(kind); }
    catch (int number) { std::cout << "int " << number << std::endl; }
    catch (const Derived &error) { std::cout << "derived " << error.what() << '\n'; }
    catch (const std::runtime_error &error) { std::cout << "runtime " << error.what() << ' ' << typeid(error).name() << '\n'; }
    catch (const std::out_of_range &error) { std::cout << "range " << error.what() << '\n'; }
    catch (const std::logic_error &error) { std::cout << "logic " << error.what() << '\n'; }
    catch (const char *text) { std::cout << "text " << text << '\n'; }
    catch (const std::string &text) { std::cout << "string " << text << '\n'; }
    catch (const std::exception &error) { std::cout << "exception " << error.what() << ' ' << typeid(error).name() << '\n'; }
    catch (...) { std::cout << "else\n"; }
}

int main(int argc, char **argv) {
    std::ios::sync_with_stdio(argc == 1);
    for (int kind = 0; kind < 17; kind++) guarded(kind);
    std::unique_ptr<Base> base(argc > 5 ? new Base : new Both);
    std::cout << base->name() << (dynamic_cast<Right *>(base.get()) != nullptr) << typeid(*base).name() << std::endl;
    for (auto *type : types) std::cout << type->name() << (*type == typeid(int)) << (type == &typeid(Mine)) << std::endl;
    std::thread([] { std::cout << "thread" << std::endl; }).join();
    auto later = std::async(std::launch::async, [] { return 7; });
    out << later.get() << std::endl;
    *outs[0] << "listed " << (outs[0] == &out) << (std::cin.tie() == &std::cout) << (std::cerr.tie() == outs[0]) << std::endl;
    *outs[1] << "error stream" << std::endl;
    std::clog << "log" << std::endl;
    std::cout << std::hex << std::setw(10) << 255 << std::setfill('*') << 1.5 << std::boolalpha << true << std::dec << std::endl;
    Counting counting;
    std::streambuf *before = std::cout.rdbuf(&counting);
    std::cout << "not seen" << 12;
    std::cout.rdbuf(before);
    int number = 0;
    if (!(std::cin >> number)) std::cin.clear();
    std::istringstream words("12 ab");
    std::string word;
    words >> number >> word;
    std::cout << counting.count << number << word << std::endl;
    std::cout.write("abc", 3).put('\n').flush();
    std::cout << std::use_facet<std::ctype<char>>(std::cout.getloc()).toupper('a') << std::endl;
    static std::once_flag once;
    std::call_once(once, [] { std::cout << "once\n"; });
    char *bytes = new (std::nothrow) char[4];
    delete[] bytes;
    if (argc > 1 && argv[1] == std::string("uncaught")) throw Derived("nobody");
    return library_variables(argc, argv);
}
