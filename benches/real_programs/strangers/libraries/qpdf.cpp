// libqpdf-dev: qpdf; jpeg z crypto gnutls
#include <iostream>
#include <qpdf/QPDF.hh>
#include <qpdf/QPDFWriter.hh>

int main() {
    QPDF pdf;
    pdf.emptyPDF();
    pdf.addPage(pdf.makeIndirectObject(QPDFObjectHandle::parse("<< /Type /Page /MediaBox [0 0 100 100] >>")), false);
    QPDFWriter writer(pdf);
    writer.setOutputMemory(), writer.setStaticID(true);
    writer.write();
    auto buffer = writer.getBufferSharedPointer();
    std::cout << buffer->getSize() << ' ' << pdf.getAllPages().size() << '\n';
    try {
        QPDFObjectHandle::parse("<< /a [ 1 2 >>");
    } catch (const std::exception &error) {
        std::cout << error.what() << '\n';
    }
}
