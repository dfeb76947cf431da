// libnghttp2-dev: nghttp2
#include <nghttp2/nghttp2.h>
#include <stdio.h>

int main(void) {
    nghttp2_hd_deflater *deflater;
    nghttp2_hd_inflater *inflater;
    unsigned char packed[300];
    nghttp2_nv in[] = {{(uint8_t *)":path", (uint8_t *)"/index.html", 5, 11, 0}, {(uint8_t *)"x-own", (uint8_t *)"value", 5, 5, 0}}, out;
    nghttp2_hd_deflate_new(&deflater, 4096), nghttp2_hd_inflate_new(&inflater);
    ssize_t size = nghttp2_hd_deflate_hd(deflater, packed, sizeof packed, in, 2);
    printf("%zd %s\n", size, nghttp2_strerror(NGHTTP2_ERR_FLOW_CONTROL));
    for (uint8_t *at = packed; size > 0;) {
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &out, &flags, at, size, 1);
        at += used, size -= used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT) printf("%s %s\n", out.name, out.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL) break;
    }
    return 0;
}
