// libpcap-dev: pcap; dbus-1
#include <pcap/pcap.h>
#include <stdio.h>

int main(void) {
    struct bpf_program program;
    const char *filters[] = {"tcp port 80 and not host 10.0.0.1", "ip6 proto 17", "icmp[0] == 8 or vlan", "tcp prot"};
    pcap_t *capture = pcap_open_dead(DLT_EN10MB, 65535);
    for (int i = 0; i < 4; i++) {
        if (pcap_compile(capture, &program, filters[i], 1, PCAP_NETMASK_UNKNOWN)) puts(pcap_geterr(capture));
        else for (unsigned j = 0; j < program.bf_len; j++) puts(bpf_image(&program.bf_insns[j], j));
    }
    return 0;
}
