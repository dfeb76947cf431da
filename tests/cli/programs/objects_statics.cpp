// Function-local statics: constructed at the first use, destroyed in reverse order.
#include "objects.h"

static Static in_statics("statics'");

static Static &lazy() {
    static Static value("lazy");
    return value;
}

void *address_of_shared() { return &shared; }

void use_statics() {
    Counter<int>::only() *= 2;
    Counter<std::string>::only() += " statics";
    Counter<int>::made++;
    lazy().name += " used";
    lazy();
    shared += 20;
}
