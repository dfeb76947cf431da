// libqhull-dev: qhullstatic_r; m
#include <libqhull_r/qhull_ra.h>

int main(void) {
    qhT state, *qh = &state;
    coordT points[3 * 60];
    for (int i = 0; i < 3 * 60; i++) points[i] = (i * i * 31 + i * 7) % 211 / 100.0;
    qh_zero(qh, stderr);
    int status = qh_new_qhull(qh, 3, 60, points, False, "qhull FA s", NULL, stdout);
    printf("%d: %d facets, %d vertices, volume %.6f\n", status, qh->num_facets, qh->num_vertices, qh->totvol);
    qh_freeqhull(qh, qh_ALL);
    return 0;
}
