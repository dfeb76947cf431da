module shapes
  implicit none
  type :: shape
     real(8) :: size
   contains
     procedure :: area => square_area
  end type shape
  type, extends(shape) :: disc
   contains
     procedure :: area => disc_area
  end type disc
contains
  real(8) function square_area(this)
    class(shape), intent(in) :: this
    square_area = this%size**2
  end function square_area
  real(8) function disc_area(this)
    class(disc), intent(in) :: this
    disc_area = 3.0d0 * this%size**2
  end function disc_area
end module shapes

program numbers
  use shapes
  implicit none
  integer, parameter :: n = 60
  real(8) :: a(n, n), b(n, n), c(n, n), total
  integer :: i, j, unit
  integer :: counters(3)
  common /shared/ counters
  character(len=40) :: text
  class(shape), allocatable :: thing
  allocate (disc :: thing)
  thing%size = 2
  counters = [1, 2, 3]
  total = 0
  !$omp parallel do reduction(+:total) private(i)
  do j = 1, n
     do i = 1, n
        a(i, j) = sin(real(i * j, 8))
        b(i, j) = cos(real(i - j, 8))
        total = total + i * j
     end do
  end do
  c = matmul(a, transpose(b))
  write (text, '(F12.6, 1X, I8)') sum(c), counters(3)
  print '(A)', trim(text)
  print '(F12.3, 2ES14.6)', thing%area(), total, maxval(c)
  open (newunit=unit, status='scratch')
  write (unit, *) 'kept', 17
  rewind (unit)
  read (unit, *) text, i
  print *, trim(text), i
  stop 4
end program numbers
