# Counts an access inline where gcc calls a hook of -fsanitize=thread.
#
# The assembler reads this file before gcc's output (assay numa cc). The macro "call" replaces the calls of the hooks of
# loads and stores, since a call through the linkage table costs as much as counting; it leaves other calls as they are.
# A hook may change the registers of a call, and so may the code in its place.
#
# Each access site has 128 slots in the counters of a thread (exact/layout.hpp): a key of the page's shadow value and the
# thread's node, and a count. If the slot of the shadow value has another key, or the thread has no counters yet, the
# runtime (exact/slots.cpp) returns the index and the base of the counter.

    .section .data.rel.assay_numa, "aw"
    .balign 8
.Lassay_base:                       # offset of the unit's slots; until it is registered, of slots that stay empty
    .quad 67133440

    .section .assay_numa_sites, ""  # a byte for each site
.Lassay_first_site:
    .subsection 1
.Lassay_last_site:

    .section .text.assay_numa, "ax", @progbits
.Lassay_start:
    subq $8, %rsp
    movl $(.Lassay_last_site - .Lassay_first_site), %edi
    callq __assay_numa_unit@PLT
    movq %rax, .Lassay_base(%rip)
    addq $8, %rsp
    ret

    .section .init_array.00102, "aw"
    .balign 8
    .quad .Lassay_start

    .text
assay_site = 0

.macro assay_count find_counter
    movq __assay_numa_own@gottpoff(%rip), %rdx
    movq %fs:(%rdx), %rdx
    shrq $12, %rdi
    testq %rdx, %rdx
    je .Lassay_find\@
    movabsq $0x200000000000, %r8
    movq (%rdx), %rcx
    movl (%rcx), %ecx
    andl $4095, %ecx
    movl 67117056(%rdx, %rcx, 4), %ecx
    movl (%r8, %rdi, 4), %eax
    addq .Lassay_base(%rip), %rdx
    addl %eax, %ecx
    andl $127, %eax
    cmpl %ecx, assay_site * 1536(%rdx, %rax, 4)
    je .Lassay_found\@
.Lassay_find\@:
    movl $(assay_site * 1536), %esi
    movq .Lassay_base(%rip), %rdx
    callq \find_counter\()@PLT
.Lassay_found\@:
    addq $1, assay_site * 1536 + 512(%rdx, %rax, 8)
    .pushsection .assay_numa_sites, "", @progbits
    .byte 0
    .popsection
assay_site = assay_site + 1
.endm

.macro call target:vararg
assay_kind = 0
.if assay_site < 262144
.irp suffix, 1, 2, 4, 8, 16, 1@PLT, 2@PLT, 4@PLT, 8@PLT, 16@PLT
.ifc \target, __tsan_read\suffix
assay_kind = 1
.endif
.ifc \target, __tsan_write\suffix
assay_kind = 2
.endif
.ifc \target, __tsan_unaligned_read\suffix
assay_kind = 1
.endif
.ifc \target, __tsan_unaligned_write\suffix
assay_kind = 2
.endif
.endr
.endif
.if assay_kind == 1
    assay_count __assay_numa_read
.elseif assay_kind == 2
    assay_count __assay_numa_write
.else
    callq \target
.endif
.endm
