// liblpsolve55-dev: lpsolve55_pic colamd suitesparseconfig; m dl
#include <lpsolve/lp_lib.h>
#include <stdio.h>

int main(void) {
    lprec *lp = make_lp(0, 3);
    set_verbose(lp, 1);
    str_add_constraint(lp, "3 2 2", LE, 9), str_add_constraint(lp, "1 5 1", LE, 8.5), str_add_constraint(lp, "-1 1 3", GE, 1);
    str_set_obj_fn(lp, "2 3 -1");
    set_maxim(lp);
    set_int(lp, 1, TRUE);
    int status = solve(lp);
    REAL values[3];
    get_variables(lp, values);
    printf("%d %.6f: %.6f %.6f %.6f\n", status, get_objective(lp), values[0], values[1], values[2]);
    delete_lp(lp);
    return 0;
}
