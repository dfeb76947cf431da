// libmxml-dev: mxml; pthread
#include <mxml.h>
#include <stdio.h>

int main(void) {
    mxml_node_t *tree = mxmlLoadString(NULL, "<?xml version=\"1.0\"?><a x=\"1\"><b>text &amp; more</b><b y=\"2\"/></a>", MXML_OPAQUE_CALLBACK);
    for (mxml_node_t *b = mxmlFindElement(tree, tree, "b", NULL, NULL, MXML_DESCEND); b; b = mxmlFindElement(b, tree, "b", NULL, NULL, MXML_DESCEND))
        printf("%s %s\n", mxmlGetOpaque(b) ? mxmlGetOpaque(b) : "-", mxmlElementGetAttr(b, "y") ? mxmlElementGetAttr(b, "y") : "-");
    mxmlNewReal(mxmlNewElement(mxmlGetFirstChild(tree), "real"), 2.5);
    puts(mxmlSaveAllocString(tree, MXML_NO_CALLBACK));
    mxmlDelete(tree);
    return 0;
}
