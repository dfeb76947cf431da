// libglpk-dev libltdl-dev: glpk gmp z colamd amd suitesparseconfig ltdl; m dl
#include <glpk.h>
#include <stdio.h>

int main(void) {
    int rows[] = {0, 1, 1, 2, 2, 3, 3}, columns[] = {0, 1, 2, 1, 2, 1, 2};
    double values[] = {0, 1, 2, 3, 1, 1, -1};
    glp_prob *problem = glp_create_prob();
    glp_set_obj_dir(problem, GLP_MAX);
    glp_add_rows(problem, 3), glp_add_cols(problem, 2);
    for (int r = 1; r <= 3; r++) glp_set_row_bnds(problem, r, GLP_UP, 0, 11 * r % 13 + 2.5);
    for (int c = 1; c <= 2; c++) glp_set_col_bnds(problem, c, GLP_LO, 0, 0), glp_set_obj_coef(problem, c, 3 + c), glp_set_col_kind(problem, c, GLP_IV);
    glp_load_matrix(problem, 6, rows, columns, values);
    glp_simplex(problem, NULL);
    printf("%.6f\n", glp_get_obj_val(problem));
    glp_intopt(problem, NULL);
    printf("%.6f\n", glp_mip_obj_val(problem));
    glp_delete_prob(problem);
    glp_free_env();
    return 0;
}
