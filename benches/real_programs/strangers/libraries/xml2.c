// libxml2-dev: xml2 icui18n icuuc icudata lzma z; m dl stdc++
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <libxml/xmlschemas.h>
#include <stdio.h>

int main(void) {
    const char text[] = "<a><b n='1'>x</b><b n='2'>&lt;y</b></a>";
    xmlDocPtr document = xmlReadMemory(text, sizeof text - 1, "made.xml", NULL, 0);
    xmlXPathObjectPtr found = xmlXPathEvalExpression((const xmlChar *)"//b[@n='2']/text()", xmlXPathNewContext(document));
    printf("%d %s\n", found->nodesetval->nodeNr, found->nodesetval->nodeTab[0]->content);
    xmlDocDump(stdout, document);
    document = xmlReadMemory("<a>", 3, "broken.xml", NULL, XML_PARSE_NOERROR);
    printf("%d %s", document == NULL, xmlGetLastError()->message);
    xmlCleanupParser();
    return 0;
}
