// libigraph-dev libarpack2-dev: igraph; m xml2 z gmp blas lapack arpack glpk stdc++ gomp
#include <igraph/igraph.h>

int main(void) {
    igraph_t graph;
    igraph_real_t length;
    igraph_vector_t ranks;
    igraph_famous(&graph, "Zachary");
    igraph_average_path_length(&graph, &length, NULL, IGRAPH_UNDIRECTED, 1);
    igraph_vector_init(&ranks, 0);
    igraph_pagerank(&graph, IGRAPH_PAGERANK_ALGO_PRPACK, &ranks, NULL, igraph_vss_all(), 0, 0.85, NULL, NULL);
    printf("%d %.6f %.6f\n", (int)igraph_vcount(&graph), length, VECTOR(ranks)[0]);
    igraph_destroy(&graph);
    return 0;
}
